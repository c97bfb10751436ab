"""Headless Chromium, and what it says of a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def headless() -> Iterator:
    """The browser; the test is skipped where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright (the extra dev) is absent"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as playing:
        found = playing.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


#: Elements that reach beyond the window, and lie in nothing that scrolls.
TOO_WIDE = """() => {
    const wide = document.documentElement.clientWidth;
    const held = (element) => {
        let up = element;
        while (up !== document.body
               && !["auto", "scroll"].includes(getComputedStyle(up).overflowX))
            up = up.parentElement;
        return up !== document.body;
    };
    const shown = [...document.querySelectorAll("main *, header *, footer *")];
    const found = shown.filter((element) => {
        const box = element.getBoundingClientRect();
        const column = element.closest(".md-content") || element.closest("article");
        const edge = column ? column.getBoundingClientRect().right : wide;
        return box.width > 1 && box.height > 1 && box.right > edge + 1
            && box.left < wide && !held(element)
            && !element.closest(".md-sidebar, .headerlink, .md-search");
    });
    const names = found.map((one) => `${one.tagName} ${one.textContent.slice(0, 60)}`);
    if (document.documentElement.scrollWidth > wide) names.push("the page itself");
    return names;
}"""


def looked_at(browser, address: str, widths: tuple[int, ...]):
    """What is too wide in windows so wide, what the console says, and requests to
    elsewhere."""
    console, asked, wide = [], [], []
    page = browser.new_page(viewport={"width": widths[0], "height": 900})
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address, wait_until="networkidle")
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        wide += page.evaluate(TOO_WIDE)
    page.close()
    own = address[: address.index("/", len("http://")) + 1]
    others = [url for url in asked if not url.startswith((own, "data:"))]
    return wide, console, others
