"""Trees of tokens, against a plain list of beginnings."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.extras.text.tower import TokenTree

texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1)


@given(texts)
def test_nodes_are_the_distinct_beginnings(found):
    tree = TokenTree.of(found)
    beginnings = {tuple(t[: i + 1]) for t in found for i in range(len(t))}
    assert len(tree.tokens) == len(beginnings)
    for text, end in zip(found, tree.ends.tolist()):
        # Who the last token attends to, by position, is the text itself.
        seen = torch.nonzero(tree.mask[end] == 0).flatten()
        seen = seen[tree.positions[seen].argsort()]
        assert tree.tokens[seen].tolist() == text
        assert tree.positions[seen].tolist() == list(range(len(text)))
    assert torch.isinf(tree.mask[tree.mask != 0]).all()
