"""Prompts with a context: the tower's own words in it give the words' text."""

from __future__ import annotations

import copy

import pytest
import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text import prompts as prompted
from federatedscope_ggeur.extras.text.prompts import PromptedClasses

NAMES = ("cat", "traffic_light", "yo-yo")


def test_a_context_of_words_is_their_text(tower, monkeypatch):
    words = "a photo of a"
    tokens = tower.tokens([words])[0]
    context = tower.embed(torch.tensor(tokens[1:-1]))
    expected = tower.features([f"{words} {n.replace('_', ' ')}." for n in NAMES], 3)
    prompts = PromptedClasses(tower, NAMES, len(context))
    found = prompts.encode(context, range(3))
    assert torch.allclose(found, expected, atol=1e-5)
    some = prompts.encode(context, [2, 0])
    assert torch.allclose(some, expected[[2, 0]], atol=1e-5)
    monkeypatch.setattr(prompted, "CLASSES", 2)
    apart = PromptedClasses(tower, NAMES, len(context)).encode(context, range(3))
    assert torch.allclose(apart, expected, atol=1e-5)
    assert prompts.width == 64
    assert copy.deepcopy(prompts) is prompts


def test_a_context_that_leaves_no_room_for_names(tower):
    with pytest.raises(ConfigError, match="more than the 77 tokens"):
        PromptedClasses(tower, NAMES, 74)
