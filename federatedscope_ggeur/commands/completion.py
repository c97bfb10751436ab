"""Completes commands when a shell's Tab key is pressed; see `docs/completion.md`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import argcomplete

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.examples import example_configs, study_files

from . import COMMANDS

#: Written by .ci/completion_names.py: asking the parts themselves imports torch.
_NAMES = Path(__file__).with_suffix(".json")
_SETTINGS = "KEY VALUE"
_PLACES = ("FILE", "FOLDER", "RUN", "STUDY", "FILE_OR_FOLDER", "RUN_OR_FOLDER")


def complete() -> None:
    """Answer a shell's request for completions, and exit.

    The request comes in environment variables of the package `argcomplete`, which also
    handles the quoting of each shell.
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
    """The words that can follow `words` on the command line.

    Parameters
    ----------
    words : sequence of str
        The complete words that stand after the program's name.
    prefix : str
        The typed part of the next word.

    Returns
    -------
    dict of str to str
        Words that begin with `prefix`, with their meanings, if known.
    bool
        Whether a file or folder may come next, too.
    """
    names = json.loads(_NAMES.read_text(encoding="utf-8"))
    command = words[0] if words and words[0] in names["commands"] else ""
    options, taken = (names["commands"][command][kind] for kind in ("options", "words"))
    fixed = [one for one in taken if not one.get("many")]
    takes_settings = taken[-1:] != [] and taken[-1]["takes"] == _SETTINGS
    at, given = _split(words[bool(command) :], options, len(fixed), takes_settings)
    if at is not None:
        found = dict.fromkeys(options[at].get("choices", ()), "")
        found |= _bundled(example_configs) if at == "--cfg" else {}
        return _beginning(found, prefix), options[at]["takes"] in _PLACES
    settings = given[len(fixed) :]
    if takes_settings and len(settings) % 2:
        found = dict.fromkeys(names["keys"].get(settings[-1], ()), "")
        return _beginning(found, prefix), settings[-1] in ("data.root", "outdir")
    found = {name: about["help"] for name, about in options.items()}
    if prefix.startswith("-"):
        return _beginning(found, prefix), False
    places = False
    if not words:
        found |= {name: one.does for name, one in COMMANDS.items()}
    elif len(given) < len(fixed):
        places = fixed[len(given)]["takes"] in _PLACES
        found |= _bundled(study_files) if command == "study" else {}
    elif takes_settings and (command or "--cfg" in words):
        found = dict.fromkeys(_sections(names["keys"], prefix), "")
    elif taken and taken[-1].get("many"):
        places = taken[-1]["takes"] in _PLACES
    return _beginning(found, prefix), places


def _split(
    words: Sequence[str], options: dict[str, dict], fixed: int, takes_settings: bool
) -> tuple[str | None, list[str]]:
    """Split words: returns the option that waits for a value, and the plain words.

    The option is None if the last word is no option with a value. Plain words belong to
    no option. A setting's value is never taken for an option.
    """
    given: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        is_value = takes_settings and len(given) > fixed and (len(given) - fixed) % 2
        if word.startswith("-") and not is_value:
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
    """The keys that begin with `prefix`, cut at their next dot if several remain.

    Keys are cut because a list of hundreds of lines helps nobody.
    """
    fitting = [key for key in keys if key.startswith(prefix)]
    while True:
        cut = {key: key.find(".", len(prefix)) + 1 for key in fitting}
        found = dict.fromkeys(key[: cut[key]] if cut[key] else key for key in fitting)
        if len(found) != 1 or not next(iter(found)).endswith("."):
            return list(found)
        (prefix,) = found


def _bundled(find: Callable[[], list[Path]]) -> dict[str, str]:
    try:
        files = [file.name for file in find()]
    except GGEURError:
        return {}
    return dict.fromkeys(files, "comes with the package")
