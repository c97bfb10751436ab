"""A reader of HTML that lets no element stay open, and no attribute stand twice."""

from html.parser import HTMLParser

EMPTY = {"meta", "link", "br"}  # elements without an end


class Strict(HTMLParser):
    """Elements that were opened and closed, their attributes, and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert len(attributes) == len(attrs)
        self.elements.append((tag, attributes))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser
