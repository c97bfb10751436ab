"""What the site of the docs needs beside docs/: a hook of mkdocs.

Files that stand elsewhere in the repository become pages, the notebook becomes one, the
public names get one, and links that lead through the repository lead through the site.
The built pages must fetch nothing.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import federatedscope_ggeur

ROOT = Path(__file__).parent.parent
NOTEBOOK = "docs/tour.ipynb"
#: file of the repository -> page of the site
PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks/index.md",
    NOTEBOOK: "tour.md",
}
#: The theme lets no line of a table break.
_STYLE = ".wy-table-responsive table td { white-space: normal; }\n"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_FETCHED = re.compile(
    r"<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    r"|url\([\"']?(?:https?:)?//[^)]*\)|@import",
)


def on_files(files, config):
    """Add the pages that are not in docs/, and the files that they link to."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = notebook_page(text) if source == NOTEBOOK else text
        files.append(File.generated(config, page, content=text))
        for link in _LINK.findall(text):
            target = _from_root(source, link)
            if (ROOT / target).is_file() and not target.endswith((".md", ".ipynb")):
                copy = File.generated(config, target, abs_src_path=str(ROOT / target))
                files.append(copy)
    files.append(File.generated(config, "api.md", content=api_page()))
    files.append(File.generated(config, "site.css", content=_STYLE))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links through the repository lead through the site."""
    sources = {page: source for source, page in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(link: re.Match) -> str:
        target = _from_root(source, link[1])
        target = PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")

    return _LINK.sub(moved, markdown)


def on_post_build(config):
    """Refuse pages that would fetch something."""
    for file in Path(config.site_dir).rglob("*"):
        if file.suffix in (".html", ".css"):
            found = _FETCHED.search(file.read_text(encoding="utf-8"))
            if found:
                raise PluginError(f"{file} fetches something: {found[0]:.200}")


def _from_root(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def notebook_page(text: str) -> str:
    """A notebook's cells as Markdown, without what they print."""
    parts = []
    for cell in json.loads(text)["cells"]:
        content = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```python\n{content}\n```" if is_code else content)
    parts.append(f"*This page is `{NOTEBOOK}` without what its cells print.*")
    return "\n\n".join(parts) + "\n"


def api_page() -> str:
    """Every public name with its signature and docstring."""
    lines = [
        "# Public names",
        "All are names of `federatedscope_ggeur`, each imported when it is first used.",
    ]
    for name in federatedscope_ggeur.__all__:
        public = getattr(federatedscope_ggeur, name)
        if not isinstance(public, str):
            lines += [f"## {name}", _documented(name, public)]
            lines += _members(name, public) if inspect.isclass(public) else []
    return "\n\n".join(lines) + "\n"


def _members(name: str, cls: type) -> list[str]:
    found = []
    for member, value in vars(cls).items():
        value = getattr(value, "__func__", value)
        if not member.startswith("_") and inspect.getdoc(value):
            shown = value.fget if isinstance(value, property) else value
            if callable(shown):
                found += [f"### {name}.{member}", _documented(member, shown)]
    return found


def _documented(name: str, value: object) -> str:
    # Annotations are texts; without their quotes they read as they are written.
    signature = str(inspect.signature(value)).replace("'", "")
    return f"```text\n{name}{signature}\n\n{inspect.getdoc(value)}\n```"
