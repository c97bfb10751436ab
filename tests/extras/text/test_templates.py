"""Templates: how many, which, what a name becomes, and what the key takes.

Tests of extras/text/keys.py.
"""

from __future__ import annotations

import hashlib

import open_clip
import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.extras.text.keys import TEMPLATES
from federatedscope_ggeur.extras.text.templates import IMAGENET80, expand, fill

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


def test_fedtpgs_config_takes_bare_names_as_its_release_does():
    templates = load_config(find_config("fedtpg_cifar100.yaml")).ggeur.text.templates
    assert [fill(t, "sea_lion") for t in expand(templates)] == ["sea lion"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["one"], ""),
        (("imagenet80", "a {} in the snow"), ""),
        ([], "1 to 1000"),
        ("one", "must be a list"),
        (["two"], "neither one of one, imagenet80"),
        (["{} {}"], "one {}"),
        ([3], "texts"),
        (["{}" + 300 * "x"], "at most 300"),
        (["one"] * 1001, "1 to 1000"),
    ],
)
def test_what_the_key_takes(value, problem):
    found = TEMPLATES.rule(value)
    assert problem in found
    assert bool(found) == bool(problem)
