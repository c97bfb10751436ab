"""Prompt templates: texts with a place for the name of a class.

The list in imagenet80.txt was published by OpenAI with CLIP
("Prompt_Engineering_for_ImageNet.ipynb" of openai/CLIP), under the MIT licence:

    Copyright (c) 2021 OpenAI

    Permission is hereby granted, free of charge, to any person obtaining a copy of this
    software and associated documentation files (the "Software"), to deal in the
    Software without restriction, including without limitation the rights to use, copy,
    modify, merge, publish, distribute, sublicense, and/or sell copies of the Software,
    and to permit persons to whom the Software is furnished to do so, subject to the
    following conditions:

    The above copyright notice and this permission notice shall be included in all
    copies or substantial portions of the Software.

    THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
    INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A
    PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
    HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
    CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
    OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_FILE = Path(__file__).with_name("imagenet80.txt")
IMAGENET80 = tuple(_FILE.read_text("utf-8").splitlines())

#: Lists of templates by name; ``one`` is CoOp's for general objects.
LISTS = {"one": ("a photo of a {}.",), "imagenet80": IMAGENET80}


def expand(templates: Sequence[str]) -> tuple[str, ...]:
    """All templates, in order and each once. A list's name stands for its templates."""
    texts = [t for name in templates for t in LISTS.get(name, (name,))]
    return tuple(dict.fromkeys(texts))


def fill(template: str, name: str) -> str:
    """`template` with the name of a class. Underscores in the name become spaces."""
    return template.replace("{}", name.replace("_", " "))
