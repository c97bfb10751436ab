"""Texts that others may write: what they could do to a log, a terminal, a table, a page
or a spreadsheet."""

from hypothesis import strategies as st

from federatedscope_ggeur.printable import is_hidden

FORGED = "2026-01-02 03:04:05 INFO client 7 has left"
#: One of each kind, and what ordinary text may hold beside it.
WORST = (
    f"art\n{FORGED}",
    f"art\r\n{FORGED}\x85\u2028\u2029{FORGED}\x0b\x0c\x1c",
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "\u202egnp.\u2066\u200f\u061c\u200b\u2060\ufeff\u00ad\U000e0041",
    "\ud800\udfff caf\udce9",
    '=HYPERLINK("http://evil.example";"x")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "--",
    "@SUM(1)",
    "\t=1+1",
    " =1+1",
    "\uff1d1+1",
    "<script>alert(1)</script>&lt;b&gt;\"'><img src=x onerror=alert(1)>",
    "[a](javascript:x) ![b](http://evil.example) `c` **d** | e <u>f</u> # g",
    "- [ ] item",
    "1. item",
    "www.evil.example",
    r"\input{/etc/passwd} $x_1^2$ % & # ~ { } ^^41 \write18{ls}",
    "[bold red]rich[/] [link=http://evil.example]x[/link]",
    "{0} %s %(name)s {name!r}",
    "../../etc/passwd",
    "x" * 100_000,
    "two words " * 10_000,
    "\x1b" * 100_000,
    "",
)
#: Names as people give them.
ORDINARY = (
    "art", "Real World", "FedAvg + GGEUR_1 & 50%", "caf\u00e9", "\u82b8\u8853",
    "\u0418\u0441\u043a\u0443\u0441\u0441\u0442\u0432\u043e", "\u0641\u0646",
    "\u05d0\u05de\u05e0\u05d5\u05ea", "\u0915\u0932\u093e", "\uc608\uc220",
    "\u6771\u4eac\u3000\u90fd", "\u03b1 = 0.1 \u00b1 0.05", "\U0001f3a8", "C:\\data",
)  # fmt: skip

# By number, so that hypothesis never prints all of them.
_worst = st.integers(0, len(WORST) - 1).map(WORST.__getitem__)
_MARKS = "\n\r\t\x00\x1b\x7f\x85\x9b\u2028\u202e\u200b\ud800 =+-@|<>&\"'`*_\\${}%#[]"
foreign = st.one_of(
    _worst,
    st.text(st.characters(), max_size=40),
    st.text(_MARKS, max_size=30),
    st.tuples(_worst, _worst).map("".join),
)


def hidden_in(text: str) -> list[str]:
    """Characters that should not be in text for a person, but its own line ends."""
    return sorted({c for c in text if c != "\n" and is_hidden(c)})
