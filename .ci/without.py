"""Try that extras and engines can be deleted: all at once, or those that are named.

    python .ci/without.py [NAME ...]

Copies the project without them and their example configs, and finds that the package is
imported, that the help lists no command of theirs, that the quickstart's head is the
same to the bit, and that the core's fast tests pass. Tests of the docs stay out: the
pages describe the whole.
So do tests of lower rooms, which import nothing that knows of extras.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from federatedscope_ggeur.extras import Manifest, manifests
from federatedscope_ggeur.settings import flatten

ROOT = Path(__file__).parents[1]
EXAMPLES = Path("scripts/example_configs")
#: Tests of pages, of the whole package, and of programs that need an engine.
OF_THE_WHOLE = (
    "test_documentation.py", "test_packaging.py", "test_public_api.py",
    "test_readme.py", "test_site.py", "test_tour.py", "engines/contract",
)  # fmt: skip
BELOW = ("data", "geometry", "methods", "models", "settings")
RUN = ("federate.total_round_num", "2", "ggeur.closed_form", "lda", "verbose", "0")


def asks(example: Path, removed: list[Manifest]) -> bool:
    """Whether an example config chooses a setting or a part of these extras."""
    given = dict(flatten(yaml.safe_load(example.read_text(encoding="utf-8"))))
    parts = [
        (f"ggeur.{setting}", name)
        for one in removed
        for setting, names in one.registers.items()
        for name in names
    ]
    keys = {f"ggeur.{key.name}" for one in removed for key in one.keys}
    return any(given.get(key) == name for key, name in parts) or bool(keys & set(given))


def copied(names: list[str], to: Path) -> None:
    """Copy the project's files to the folder `to`, without extras and engines."""
    said = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    gone = {f"{room}/{name}" for name in names for room in ("extras", "engines")}
    manifest_of = manifests()
    removed = [manifest_of[name] for name in names]
    for file in filter(None, said.stdout.decode().split("\0")):
        path = Path(file)
        if "/".join(path.parts[1:3]) in gone or not (ROOT / path).exists():
            continue
        is_example = path.parent == EXAMPLES or path.match("extras/*/configs/*.yaml")
        if is_example and asks(ROOT / path, removed):
            continue
        (to / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, to / path)


def python(place: Path, *words: str) -> str:
    """Run Python on the project in `place`; returns what it prints."""
    env = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, *words], cwd=place, env=env, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"failed without the extras: python {' '.join(words)}")
    return done.stdout


def head_of(place: Path, out: Path) -> str:
    """The hash of the head that the quickstart's config leaves."""
    where = ("outdir", str(out), "expname", "run")
    run = ("-m", "federatedscope_ggeur", "--cfg", "ggeur_quickstart.yaml")
    python(place, *run, *RUN, *where)
    content = (out / "run" / "head.safetensors").read_bytes()
    return hashlib.sha256(content).hexdigest()


def main(names: list[str]) -> None:
    """Try it without the extras `names`, and those that need them; by default all."""
    known = manifests()
    names = names or list(known)
    names += [
        name for name in known if name not in names and {*known[name].needs} & {*names}
    ]
    with tempfile.TemporaryDirectory() as folder:
        place, out = Path(folder) / "core", Path(folder) / "out"
        copied(names, place)
        shown = python(place, "-m", "federatedscope_ggeur", "--help")
        lines = {line.split()[0] for line in shown.splitlines() if line.strip()}
        for name in names:
            for command in known[name].commands:
                if command in lines:
                    raise SystemExit(f"the help lists {command}, a command of {name}")
        if head_of(place, out / "without") != head_of(ROOT, out / "whole"):
            raise SystemExit("the quickstart has another head without the extras")
        engines = (f"engines/{name}" for name in known)
        left_out = (*OF_THE_WHOLE, *BELOW, "extras", *engines)
        ignored = [f"--ignore=tests/{name}" for name in left_out]
        print(python(place, "-m", "pytest", "-p", "no:cacheprovider", *ignored))
    print(f"whole without {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1:])
