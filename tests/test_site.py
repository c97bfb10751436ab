"""The docs as a site: pages say what their sources say, and are quiet in a browser."""

import functools
import http.server
import inspect
import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browsers import headless, looked_at

import federatedscope_ggeur
from federatedscope_ggeur.extras import all_of

ROOT = Path(__file__).parent.parent
#: Pages whose sources lie elsewhere.
ELSEWHERE = {
    "README.md": "readme",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "benchmarks/index",
}
SOURCES = {f"docs/{file.name}": file.stem for file in ROOT.glob("docs/*.md")}
#: What a source may hold as HTML; any other `<name>` is text.
ELEMENT = re.compile(r"</?(?:picture|source|img|br|sub|sup|p|div|a)\b[^>]*>")
APART = re.compile(
    r"^```.*?^```|`+[^`]*`+|(<!--.*?-->)|\$\$(.+?)\$\$|\$(?=\S)([^$\n]+?)(?<=\S)\$",
    re.DOTALL | re.MULTILINE,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, as CI builds it."""
    pytest.importorskip("material", reason="mkdocs-material (the extra dev) is absent")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings (extra dev) is absent")
    folder = tmp_path_factory.mktemp("site")
    words = ("-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_are_called_as_in_the_navigation():
    """All but the README, whose title is the package's name."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    sources = {f"{page}.md": ROOT / source for source, page in ELSEWHERE.items()}
    found = {}
    for title, page in re.findall(r"^      - (.+): (\S+\.md)$", nav, re.MULTILINE):
        source = sources.get(page, ROOT / "docs" / page)
        if source.exists() and page != "readme.md":
            text = source.read_text(encoding="utf-8")
            found[title] = re.search(r"^# (.+)$", text, re.MULTILINE)[1]
    assert len(found) > 30
    assert {title: title for title in found} == found


def spelt(formula: str) -> str:
    """A formula as one word, whatever signs it is made of; a page has it as MathML."""
    return f"tex{' '.join(formula.split()).encode().hex()}"


class Text(HTMLParser):
    """The words within articles, formulas spelt; without what the theme adds."""

    def __init__(self):
        super().__init__()
        self.depth, self.skipped, self.words = 0, 0, ""

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "math":
            self.words += spelt(attributes["alttext"])
        classes = (attributes.get("class") or "").split()
        is_added = tag in ("math", "script", "style") or "headerlink" in classes
        if self.skipped or is_added:
            self.skipped += tag not in ("br", "img", "source", "input", "hr")
        self.depth += tag == "article"
        if tag in ("p", "td", "th", "li", "pre", "br", "h1", "h2", "h3", "div"):
            self.words += " "

    def handle_endtag(self, tag):
        self.skipped -= self.skipped > 0
        self.depth -= tag == "article"

    def handle_data(self, data):
        if self.depth and not self.skipped:
            self.words += data


def text_of(page: str) -> list[str]:
    """The words that a page shows within its articles."""
    parser = Text()
    parser.feed(page)
    return parser.words.split()


def words_of(source: str) -> list[str]:
    """The words of Markdown, as another reader of Markdown has them."""
    markdown_it = pytest.importorskip("markdown_it")

    def kept(found: re.Match) -> str:
        comment, *formulas = found.groups()
        formula = next(filter(None, formulas), "")
        return spelt(formula) if formula else "" if comment else found[0]

    source = ELEMENT.sub("", APART.sub(kept, source))
    reader = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    return text_of(f"<article>{reader.render(source)}</article>")


def differing(said: list[str], shown: list[str]) -> str:
    """Where two texts part, for a person; "" if they do not."""
    for at, (word, other) in enumerate(zip([*said, ""], [*shown, ""])):
        if word != other:
            start = max(at - 6, 0)
            return f"{said[start : at + 6]} is shown as {shown[start : at + 6]}"
    return ""


@pytest.mark.parametrize("source", [*SOURCES, *ELSEWHERE])
def test_a_page_says_what_its_source_says(source, site):
    page = site / f"{({**SOURCES, **ELSEWHERE})[source]}.html"
    said = words_of((ROOT / source).read_text(encoding="utf-8"))
    shown = text_of(page.read_text(encoding="utf-8"))
    assert not differing(said, shown)
    assert not [word for word in shown if "&lt;" in word], "escaped within code"


def test_what_looks_like_an_element_comes_out_as_written(site):
    """In the page of settings, which has no source to compare it with."""
    keys = " ".join(text_of((site / "keys.html").read_text()))
    assert "-<h_k, w> + alpha/2 |w - w_g|^2" in keys
    assert "one line <number> <64 hex digits> each" in keys


@pytest.mark.parametrize("name", [*federatedscope_ggeur._HOMES, *all_of("public")])
def test_a_public_name_is_documented(name, site):
    page = " ".join(text_of((site / "api.html").read_text()))
    about = inspect.getdoc(getattr(federatedscope_ggeur, name))
    summary = " ".join(words_of(about.partition("\n\n")[0]))
    assert name in page
    assert summary in page


def test_every_key_is_in_the_table(site):
    from federatedscope_ggeur.cfg_ggeur import all_keys

    shown = text_of((site / "keys.html").read_text(encoding="utf-8"))
    assert {f"ggeur.{key.name}" for key in all_keys()} <= set(shown)


def test_the_notebook_shows_what_its_cells_gave(site):
    notebook = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
    page = (site / "tour.html").read_text(encoding="utf-8")
    shown = " ".join(text_of(page))
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    for output in outputs:
        printed = "".join(output.get("text", ""))
        assert " ".join(printed.split()) in shown
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == page.count('src="tour_')
    assert pictures
    for picture in re.findall(r'src="(tour_\d+\.png)"', page):
        assert (site / picture).stat().st_size > 1000


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *given):
        pass


@pytest.fixture(scope="module")
def served(site):
    """The site's address on this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with headless() as found:
        yield found


def test_the_look_sees_what_is_wrong(browser, served, site):
    (site / "control.html").write_text(
        "<main><article style='width: 300px'><p style='width: 800px'>wide</p>"
        "<div style='overflow-x: auto'><p style='width: 800px'>scrolls</p></div>"
        "<img src='http://127.0.0.1:9/x.png'></article></main>"
        "<script>console.error('heard')</script>",
        encoding="utf-8",
    )
    wide, console, others = looked_at(browser, f"{served}control.html", (390,))
    assert wide == ["P wide", "the page itself"]
    assert "heard" in console
    assert others == ["http://127.0.0.1:9/x.png"]
    (site / "control.html").unlink()


def test_chromium_shows_every_page_whole_and_quietly(browser, served, site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for file in pages:
        address = served + file.relative_to(site).as_posix()
        assert looked_at(browser, address, (1280, 390)) == ([], [], []), address


@pytest.mark.parametrize("opened_as", ["page", "file"])
def test_search_finds_a_key(browser, served, site, opened_as):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    address = {"page": f"{served}index.html", "file": (site / "index.html").as_uri()}
    page.goto(address[opened_as], wait_until="networkidle")
    page.keyboard.press("/")
    page.keyboard.type("min_samples")
    page.wait_for_selector(".md-search-result__item")
    assert "Privacy" in page.inner_text(".md-search-result__list") or "privacy" in (
        page.inner_text(".md-search-result__list")
    )
    page.close()
