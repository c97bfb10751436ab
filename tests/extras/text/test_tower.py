"""The text tower against open_clip's own `encode_text`, and golden numbers."""

from __future__ import annotations

from types import SimpleNamespace

import open_clip
import pytest
import torch
from torch.nn.functional import normalize

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.text.tower import TextTower, TokenTree

TEXTS = [
    "a photo of a cat.",
    "a photo of a traffic light.",
    "graffiti of a dog.",
    "a photo of a cat.",
    "itap of my yo-yo, in the rain of 1987.",
]
#: Of CLIP's tokeniser: start 49406, end 49407.
IDS = [
    [49406, 320, 1125, 539, 320, 2368, 269, 49407],
    [49406, 320, 1125, 539, 320, 3399, 1395, 269, 49407],
    [49406, 11676, 539, 320, 1929, 269, 49407],
    [49406, 320, 1125, 539, 320, 2368, 269, 49407],
]


def by_open_clip(loaded, texts) -> torch.Tensor:
    """Without a cut: all 77 tokens of each."""
    made = loaded[1].both_sides
    with torch.no_grad():
        return made.model.encode_text(open_clip.get_tokenizer(made.name)(texts))


def test_token_ids(tower):
    ids = tower.tokens(TEXTS)
    assert ids[:4] == IDS
    assert [len(row) for row in ids] == [8, 9, 7, 8, 19]
    assert {row[0] for row in ids} == {49406}
    assert {row[-1] for row in ids} == {49407}


@pytest.mark.slow
def test_cut_prompts_that_share_beginnings_give_what_whole_ones_give(tower, loaded):
    expected = by_open_clip(loaded, TEXTS)
    for size in (1, 2, 5):
        assert torch.allclose(tower.features(TEXTS, size), expected, atol=1e-5)


def test_seven_texts_are_rows_of_a_hundred(tower):
    names = [f"a photo of a {word} {i}." for i in range(20) for word in "abcde"]
    many, few = tower.features(names, 100), tower.features(names[:7], 100)
    assert torch.allclose(normalize(few), normalize(many[:7]), atol=1e-6)


def test_features_of_the_seeded_tower_are_golden(tower):
    """Two layers, 64 wide, the seed of "none".

    The numbers are those of ``model.encode_text`` of open_clip 3.3.0 and torch 2.15.
    """
    found = tower.features(TEXTS[:1], 1)[0, :6]
    golden = torch.tensor(GOLDEN)
    assert torch.allclose(found, golden, atol=1e-5)


GOLDEN = [0.9174439, -1.7100151, 0.2414481, -0.1358288, 0.6326821, -1.3596202]


def test_soft_prompts_made_of_token_embeddings_are_the_text(tower, loaded):
    """Rows of embeddings in place of the tokens' own: what learnt prompts are."""
    text = "X X X X cat."
    tree = TokenTree.of(tower.tokens([text, "X X X X red dog."]))
    soft = tower.embed(tree.tokens).clone().requires_grad_(True)
    found = tower.encode(soft, tree)
    assert torch.allclose(found[:1].detach(), by_open_clip(loaded, [text]), atol=1e-6)
    found.sum().backward()
    assert soft.grad.abs().sum() > 0


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_cut_as_clip_does(tower, loaded):
    text = "word " * 200
    assert len(tower.tokens([text])[0]) == tower.context == 77
    expected = by_open_clip(loaded, [text])
    assert torch.allclose(tower.features([text], 1), expected, atol=1e-5)


def test_other_text_sides_are_refused(tower, loaded):
    model = loaded[1].both_sides.model
    names = (
        "token_embedding", "positional_embedding", "transformer", "ln_final",
        "text_projection",
    )  # fmt: skip
    parts = {name: getattr(model, name) for name in names}
    for change in ({"attn_mask": None}, {}, {"attn_mask": 1, "cls_emb": 1}):
        with pytest.raises(ConfigError, match="not a causal CLIP transformer"):
            TextTower(SimpleNamespace(**parts, **change), len, 1.0)
    side = SimpleNamespace(**parts, attn_mask=1, text_pool_type="last")
    with pytest.raises(ConfigError, match="by 'last'"):
        TextTower(side, len, 1.0)
    assert tower.scale == pytest.approx(1 / 0.07)
