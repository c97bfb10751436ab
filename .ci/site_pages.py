"""What the site of the docs needs beside docs/: a hook of mkdocs.

Files that stand elsewhere in the repository become pages, and so do the notebook, the
keys and the public names. Links that lead through the repository lead through the site.
Formulas become MathML. The built pages must fetch nothing.
"""

from __future__ import annotations

import base64
import html
import inspect
import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from pathlib import Path

from latex2mathml.converter import convert
from markdown import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import ETX, STX
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import federatedscope_ggeur
from federatedscope_ggeur import reporting
from federatedscope_ggeur.cfg_ggeur.keys import REGISTRIES, all_keys
from federatedscope_ggeur.data import READERS, SUFFIX
from federatedscope_ggeur.extras import all_of
from federatedscope_ggeur.extras.networks.base import ImageShape, Network
from federatedscope_ggeur.extras.text.classes import ClassTexts
from federatedscope_ggeur.methods import (
    Batch,
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Method,
    ServerContext,
    Update,
)
from federatedscope_ggeur.models.closed_forms import Seen
from federatedscope_ggeur.reporting import Results

ROOT = Path(__file__).parent.parent
NOTEBOOK = "docs/tour.ipynb"
#: What parts of plugins get and return, in the order of docs/plugins.md.
GIVEN = (
    LocalContext,
    LocalHooks,
    Batch,
    LocalOutcome,
    Update,
    ServerContext,
    Seen,
    ImageShape,
    Network,
    ClassTexts,
)
#: file of the repository -> page of the site
PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks/index.md",
    NOTEBOOK: "tour.md",
}
# The fonts are the reader's own: the first that is there.
_STYLE = """\
.md-typeset div.maths, .md-typeset div.output { overflow-x: auto; }
.md-typeset div.maths { padding: 0.4em 0; }
.md-typeset code { overflow-wrap: anywhere; }
.md-typeset table code { overflow-wrap: normal; word-break: keep-all; }
.md-typeset table[data-told] td:nth-child(2):not(:last-child) { min-width: 9rem; }
/* A shadow at an edge behind which a wide table goes on. */
.md-typeset__scrollwrap { background:
  linear-gradient(90deg, var(--md-default-bg-color) 30%, transparent)
    0 / 3rem 100% local,
  linear-gradient(270deg, var(--md-default-bg-color) 30%, transparent)
    100% / 3rem 100% local,
  linear-gradient(90deg, #0003, transparent) 0 / 0.6rem 100% scroll,
  linear-gradient(270deg, #0003, transparent) 100% / 0.6rem 100% scroll;
  background-repeat: no-repeat; }
.md-typeset table:not([class]) { background-color: transparent; }
.md-typeset mfrac > * { padding: 0.1em; }
.md-typeset math { font-family: "STIX Two Math", "Latin Modern Math", "Cambria Math",
  "STIX Math", "DejaVu Math TeX Gyre", math; }
.md-typeset .output caption { text-align: left; }
"""
#: Elements that our pages write by themselves; any other `<name>` is text.
_ELEMENTS = "picture|source|img|br|sub|sup|p|div|table|a|math"
_LINK = re.compile(
    r"(?:(?<=\]\()|(?<=\ssrc=\")|(?<=\ssrcset=\"))(?!\w+:|#)([^)#\s\"]+)"
)
_MATHS = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)
#: What belongs to an item of a list; Python-Markdown asks for four spaces.
_HANGING = re.compile(r"(^```.*?^```)|^ {2,3}(?=\S)", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_SECOND = re.compile(r"<tr>\s*<td\b.*?</td>\s*<td\b[^>]*>(.*?)</td>", re.DOTALL)
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_FETCHED = re.compile(
    r"<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    r"|url\([\"']?(?:https?:)?//[^)]*\)|@import",
)


def on_config(config):
    """Know which `<name>` is text."""
    config.markdown_extensions.append(_UnknownElements())
    return config


class _UnknownElements(Extension):
    """`timm:<model>` stands on the page as it is written."""

    def extendMarkdown(self, md):
        known = rf"<(?!!|/|https?:|mailto:|(?:{_ELEMENTS})\b)"
        # "html", which takes it for an element, has the priority 90.
        md.inlinePatterns.register(_AsText(known, md), "unknown element", 95)


class _AsText(InlineProcessor):
    def handleMatch(self, m, data):
        return f"{STX}{ord('<')}{ETX}", m.start(0), m.end(0)


def on_files(files, config):
    """Add the pages that are not in docs/, and the files that they link to."""
    pages = {
        "api.md": api_page(),
        "fields.md": results_page(),
        "plugin_fields.md": fields_page(
            "What a plugin's parts get",
            "The hooks of a method, and the arguments and results of the parts that "
            f"[a plugin](plugins.md) registers.\n\n{hooks_of_a_method()}",
            GIVEN,
        ),
        "keys.md": keys_page(),
        "site.css": _STYLE,
        "offline.js": (ROOT / ".ci" / "offline.js").read_text(encoding="utf-8"),
    }
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == NOTEBOOK:
            text, pictures = notebook_page(text)
            pages |= pictures
        pages[page] = text
        for link in _LINK.findall(text):
            target = _from_root(source, link)
            is_elsewhere = not target.startswith("docs/") and (ROOT / target).is_file()
            if is_elsewhere and not target.endswith((".md", ".ipynb")):
                copy = File.generated(config, target, abs_src_path=str(ROOT / target))
                files.append(copy)
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
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

    return _HANGING.sub(lambda m: m[1] or " " * 4, _LINK.sub(moved, markdown))


def on_page_content(content, page, config, files):
    """Write formulas as MathML, which browsers show by themselves, and bars as such."""

    def written(formula: re.Match) -> str:
        tag, tex = formula[1], html.unescape(formula[2])
        display = "block" if tag == "div" else "inline"
        maths = convert(tex, display=display)
        maths = maths.replace("<mo>&#x02016;", '<mo stretchy="false">&#x02016;')
        maths = maths.replace("<math ", f'<math alttext="{html.escape(tex)}" ', 1)
        return f'<{tag} class="maths">{maths}</{tag}>'

    content = _MATHS.sub(written, content)
    content = _TABLE.sub(_told, content)
    # As on GitHub, a cell's `\|` is a bar also within code.
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), content)


def _told(table: re.Match) -> str:
    """A table whose second column has sentences gives that column room."""
    seconds = (re.sub("<[^>]*>", "", cell) for cell in _SECOND.findall(table[0]))
    has_text = any(len(text) > 30 for text in seconds)
    return table[0].replace("<table>", "<table data-told>", 1) if has_text else table[0]


def on_post_build(config):
    """Let files be searched, and refuse pages that would fetch something."""
    index = Path(config.site_dir, "search", "search_index.json")
    held = index.read_text(encoding="utf-8")
    index.with_suffix(".js").write_text(f"var __index = {held}", encoding="utf-8")
    for file in Path(config.site_dir).rglob("*"):
        if file.suffix in (".html", ".css"):
            found = _FETCHED.search(file.read_text(encoding="utf-8"))
            if found:
                raise PluginError(f"{file} fetches something: {found[0]:.200}")


def _from_root(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def notebook_page(text: str) -> tuple[str, dict[str, bytes]]:
    """A notebook's cells as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in json.loads(text)["cells"]:
        content = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(content)
            continue
        parts.append(f"```python\n{content}\n```")
        for output in cell["outputs"]:
            shown = output.get("data", {})
            if "image/png" in shown:
                name = f"tour_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(shown["image/png"]))
                parts.append(f"![What the cell shows]({name})")
            elif "text/html" in shown:
                table = "".join(shown["text/html"])
                parts.append(f'<div class="output">\n{table}\n</div>')
            else:
                printed = "".join(output.get("text", shown.get("text/plain", "")))
                parts.append(f"```text\n{printed.rstrip()}\n```")
    parts.append(f"*This page is `{NOTEBOOK}`.*")
    return "\n\n".join(parts) + "\n", pictures


def api_page() -> str:
    """Every public name, each to be documented by mkdocstrings."""
    lines = [
        "# Python names",
        "All are names of `federatedscope_ggeur`, each imported when it is first used.",
    ]
    homes = {
        k: f"federatedscope_ggeur.{v}" for k, v in federatedscope_ggeur._HOMES.items()
    }
    homes |= all_of("public")
    for name, home in sorted(homes.items()):
        own = getattr(federatedscope_ggeur, name).__name__
        if own != name:
            lines.append(f"`{name}` is another name of `{own}`:")
        lines.append(f"::: {home}.{own}")
    return "\n\n".join(lines) + "\n"


def results_page() -> str:
    """Every class of which ``results.json`` is made, to be documented likewise."""
    classes = {one for one in vars(reporting).values() if is_dataclass(one)}
    return fields_page(
        "Fields of results.json",
        "[Results files](results.md) says which class describes which part.",
        sorted(classes, key=lambda one: (one is not Results, one.__name__)),
    )


def fields_page(title: str, about: str, classes: Iterable[type]) -> str:
    """The classes' own docstrings, which describe each field."""
    lines = [f"# {title}", about]
    for one in classes:
        lines.append(
            f"::: {one.__module__}.{one.__name__}\n    options: {{members: false}}"
        )
    return "\n\n".join(lines) + "\n"


def hooks_of_a_method() -> str:
    """What `Method` says of each hook whose docstring names a side."""
    rows = []
    for name, hook in vars(Method).items():
        said = inspect.getdoc(hook) if inspect.isfunction(hook) else ""
        side, colon, what = said.partition("\n\n")[0].partition(": ")
        if colon and side.split(",")[0] in ("Client", "Server", "Both sides"):
            given = ", ".join(list(inspect.signature(hook).parameters)[1:])
            row = (f"`{name}({given})`", side.lower(), " ".join(what.split()))
            rows.append(row)
    return _table(("hook", "called on", "returns"), rows)


def keys_page() -> str:
    """Every setting that this package adds, as `ggeur keys` has it."""
    lines = [
        "# Keys",
        "Every setting that this package adds to a config, with its default. "
        "`ggeur keys` prints the same. FederatedScope's own keys keep "
        "their meaning: see "
        "[what of FS is honoured](federatedscope.md#what-of-fs-is-honoured).",
        "## Names to choose from",
    ]
    for registry in REGISTRIES:
        field = registry.field
        lines.append(f"`{field if '.' in field else f'ggeur.{field}'}`:")
        suffix = SUFFIX if field == READERS.field else ""
        names = [(f"`{name}{suffix}`", p.meaning) for name, p in registry.items()]
        lines.append(_table(("name", "meaning"), names))
    sections = {"ggeur": [("`ggeur.use`", "`False`", "True switches the plugin on.")]}
    for key in all_keys():
        section = f"ggeur.{key.name}".rpartition(".")[0]
        sections.setdefault(section, []).append(_described(section, key))
    for registry in REGISTRIES:
        for name, part in registry.items():
            section = getattr(part, "SECTION", "")  # of a key that is FS's own
            for key in part.SETTINGS if section else ():
                row = _described(section, key, f"`{name}`: ")
                sections.setdefault(section, []).append(row)
    for section, rows in sections.items():
        lines += [f"## {section}", _table(("key", "default", "meaning"), rows)]
    return "\n\n".join(lines) + "\n"


def _described(section, key, about="") -> tuple[str, str, str]:
    shown = key.in_config
    default = int(shown) if isinstance(shown, float) and shown.is_integer() else shown
    shown = "" if default in (None, "") else f"`{default}`"
    name = key.name.rpartition(".")[2]
    return f"`{section}.{name}`", shown, about + key.meaning


def _table(head, rows) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
