"""Templates: how many, which, and what a name becomes."""

from __future__ import annotations

import hashlib

import open_clip

from federatedscope_ggeur.data.text.templates import IMAGENET80, expand, fill

#: Of the templates with a line feed between two.
DIGEST = "4f976686fb651bb5803d4689dcd849f75efe0ef19a3c801355bc9a6f03c8a5af"


def test_the_eighty_are_openais():
    assert len(IMAGENET80) == len(set(IMAGENET80)) == 80
    assert hashlib.sha256("\n".join(IMAGENET80).encode()).hexdigest() == DIGEST
    theirs = [make("{}") for make in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert list(IMAGENET80) == theirs


def test_lists_expand_in_place_and_nothing_stands_twice():
    assert expand(["one"]) == ("a photo of a {}.",)
    assert expand(["{}!", "imagenet80", "one"])[:2] == ("{}!", IMAGENET80[0])
    assert len(expand(["imagenet80", "one"])) == 80  # "one" is among them


def test_underscores_in_names_are_spaces():
    assert fill("a photo of a {}.", "alarm_clock") == "a photo of a alarm clock."
