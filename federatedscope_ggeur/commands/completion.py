"""What a shell offers when Tab is pressed; `docs/completion.md` switches it on."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import argcomplete

from federatedscope_ggeur.commands import COMMANDS
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.examples import example_folder

#: Written by .ci/completion_names.py: asking the parts themselves imports torch.
_NAMES = Path(__file__).with_suffix(".json")
_SETTINGS = "KEY VALUE"
_PLACES = ("FILE", "FOLDER", "RUN", "STUDY", "IMAGE_OR_FOLDER")


def complete() -> None:
    """Answer a shell that asks for completions, and exit.

    It asks by the environment of `argcomplete`, which also knows how each shell quotes.
    """
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, prefix, _, words, _ = argcomplete.split_line(line, point)
    start = int(os.environ["_ARGCOMPLETE"])  # words of the program itself
    found, places = completions(words[start:], prefix)

    def answer(prefix: str, **context: object) -> dict[str, str]:
        files = argcomplete.FilesCompleter()(prefix) if places else []
        return {**dict.fromkeys(files, ""), **found}

    # To argcomplete every word is alike: which one is what was found out above.
    parser = argparse.ArgumentParser(prefix_chars="\0", add_help=False)
    parser.add_argument("words", nargs="*").completer = answer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def completions(words: Sequence[str], prefix: str) -> tuple[dict[str, str], bool]:
    """What may stand behind `words`, the program's name left out.

    Parameters
    ----------
    words : sequence of str
    prefix : str
        What of the next word is typed.

    Returns
    -------
    dict of str to str
        Words that begin with `prefix`, and what they do, where that is known.
    bool
        Whether a file or folder may stand there, too.
    """
    names = json.loads(_NAMES.read_text(encoding="utf-8"))
    command = words[0] if words and words[0] in names["commands"] else ""
    options = names["commands"][command]
    before = list(words[1:] if command else words)
    at, given = _option_at_end(before, options)
    if at is not None:
        found = dict.fromkeys(options[at].get("choices", ()), "")
        if at == "--cfg":
            found = dict.fromkeys(_example_names(), "an example config")
        return _beginning(found, prefix), options[at]["takes"] in _PLACES
    own = options.get("", {})
    takes_settings = own.get("takes") == _SETTINGS
    if takes_settings and len(given) % 2:
        found = dict.fromkeys(names["keys"].get(given[-1], ()), "")
        return _beginning(found, prefix), given[-1] in ("data.root", "outdir")
    found = {name: about["help"] for name, about in options.items() if name}
    if prefix.startswith("-"):
        return _beginning(found, prefix), False
    if not words:
        found |= {name: one.does for name, one in COMMANDS.items()}
    elif takes_settings and ("--cfg" in words or command):
        found = dict.fromkeys(_sections(names["keys"], prefix), "")
    places = bool(own) and not takes_settings and (own.get("many") or not given)
    return _beginning(found, prefix), places


def _option_at_end(
    words: Sequence[str], options: dict[str, dict]
) -> tuple[str | None, list[str]]:
    """The option that waits for its value, if the last word is one, and the words that
    belong to none. The value of a setting is no option, whatever it looks like."""
    given: list[str] = []
    rest = list(words)
    settings = options.get("", {}).get("takes") == _SETTINGS
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and not (settings and len(given) % 2):
            if "takes" in options.get(word, {}):
                if not rest:
                    return word, given
                rest.pop(0)
        else:
            given.append(word)
    return None, given


def _beginning(found: dict[str, str], prefix: str) -> dict[str, str]:
    return {name: does for name, does in found.items() if name.startswith(prefix)}


def _sections(keys: Iterable[str], prefix: str) -> list[str]:
    """The keys that begin with `prefix`, up to their next dot where that leaves a
    choice: hundreds of lines help nobody."""
    fitting = [key for key in keys if key.startswith(prefix)]
    while True:
        cut = {key: key.find(".", len(prefix)) + 1 for key in fitting}
        found = dict.fromkeys(key[: cut[key]] if cut[key] else key for key in fitting)
        if len(found) != 1 or not next(iter(found)).endswith("."):
            return list(found)
        (prefix,) = found


def _example_names() -> list[str]:
    try:
        return sorted(file.name for file in example_folder().glob("*.yaml"))
    except GGEURError:
        return []
