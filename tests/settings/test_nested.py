"""Nested settings as keys with dots."""

from federatedscope_ggeur.settings import flatten

NESTED = {"a": {"b": 1, "c": {"d": []}}, "e": {}}


def test_keys_have_dots():
    assert dict(flatten(NESTED)) == {"a.b": 1, "a.c.d": []}
    assert list(flatten({"a": {"b": {}}})) == []


def test_empty_sections_only_if_asked():
    found = dict(flatten(NESTED, keep_empty=True))
    assert found == {"a.b": 1, "a.c.d": [], "e": {}}
