"""A YAML file is a config, or refused in one line."""

from __future__ import annotations

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml
from federatedscope_ggeur.errors import ConfigError

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed: 1\nseed: 2\n", "line 2: the key 'seed' appears twice"),
        ("ggeur:\n  use: True\n  use: False\n", "line 3: the key 'ggeur.use' appears"),
        ("seed: &a [*a]\n", "contains itself"),
        ("seed: &a {b: *a}\n", "contains itself"),
        (BOMB, "holds more than 10000 values"),
        ("a: " + "[" * 50 + "]" * 50, "more than 20 nested levels"),
        ("a: " + "[" * 50_000, "nested too deeply"),
        ("a: " + "1" * 2**20, "longer than 1 MiB"),
        ("a: [1,\nb: 2", "is not valid YAML: line 2: expected ',' or ']'"),
        ("a:\n\tb: 1", "is not valid YAML: line 2: found character"),
        ("day: 2020-13-45", "is not valid YAML"),
        ("? [1, 2]\n: 3", "is not valid YAML"),
        ("- 1", "must hold 'key: value' lines"),
        ("x" * 5000, "must hold 'key: value' lines"),
        (b"\x00\xff", "is no text in UTF-8"),
        ("# nothing\n", "is empty: it has no settings"),
    ],
    ids=range(16),
)
def test_what_is_no_config_is_refused_in_one_line(tmp_path, text, problem):
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        list(read_yaml(path))
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).count(str(path)) == 1
    assert "\\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_aliases_and_merges_that_a_config_has_are_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc:\n  <<: *a\n  y: 4\n")
    assert dict(read_yaml(path)) == {
        "a.x": 1, "a.y": [2, 3], "b.x": 1, "b.y": [2, 3], "c.x": 1, "c.y": 4,
    }  # fmt: skip


def test_an_empty_section_is_no_value(tmp_path, quickstart):
    path = tmp_path / "config.yaml"
    path.write_text(quickstart.read_text() + "seed: {}\n")
    with pytest.raises(ConfigError, match=r"seed: expected int, got dict \{\}"):
        load_config(path)
    path.write_text(quickstart.read_text() + "grad: {}\n")
    assert load_config(path).grad.grad_clip == load_config(quickstart).grad.grad_clip


@pytest.mark.slow
@pytest.mark.parametrize("key", ["seed", "ggeur.scale", "ggeur.domain", "data.root"])
def test_long_values_are_cut_in_messages(quickstart, key):
    for value in ([[]] * 100_000, {str(n): n for n in range(100)}, 10**5000):
        with pytest.raises(ConfigError) as caught:
            load_config(quickstart, {key: value})
        assert len(str(caught.value)) < 2500


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("federate.total_round_num", 1e308),
        ("federate.client_num", 10**9),
        ("train.local_update_steps", 2**31),
        ("ggeur.step1_size", 1e308),
        ("ggeur.num_threads", 10**6),
    ],
)
def test_what_would_take_for_ever_is_refused(quickstart, key, value):
    with pytest.raises(ConfigError, match=key) as caught:
        load_config(quickstart, {key: value})
    assert len(str(caught.value)) < 1500
