"""Settings mean the same inside FederatedScope (FS) and on the embedded engine.

Known differences, all of FS's own making, and loud except for the first:
  a fraction for a whole number is cut off by FS, and refused by the embedded engine;
  a text that looks like a number or a list is refused by FS unless it is in quotes;
  settings of FS alone (`ON_FS`) are refused by the embedded engine.

Tests of engines/fs/registration.py.
"""

from __future__ import annotations

from ast import literal_eval
from pathlib import Path

import pytest
from standalone import merged

from federatedscope_ggeur.cfg_ggeur import all_keys, get_key
from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "scripts" / "example_configs"
REFUSED = "refused"
DEFAULTS = {
    **{key.name: key.default for key in fs_keys()},
    **{f"ggeur.{key.name}": key.default for key in all_keys()},
}
ON_FS = {key.name for key in fs_keys() if key.on_fs is not None}


@pytest.fixture(scope="module")
def base(federatedscope):
    """FS's config with the quickstart in it."""
    return merged(EXAMPLES / "ggeur_quickstart.yaml")


@pytest.fixture(scope="module")
def words() -> list[str]:
    """The quickstart as words behind a file: reading YAML a thousand times is slow."""
    cfg = load_config(EXAMPLES / "ggeur_quickstart.yaml")
    names = [*DEFAULTS, *(f"train.optimizer.{key}" for key in cfg.train.optimizer)]
    found = {name: get_key(cfg, name) for name in ["ggeur.use", *names]}
    return [word for name, value in found.items() for word in (name, str(value))]


@pytest.fixture
def values(base, words):
    """The values of all keys, and of those in the override, here and on FS."""
    from federatedscope_ggeur.engines.fs.config import check

    def here(*override):
        try:
            cfg = load_config(None, [*words, *override])
        except ConfigError:
            return REFUSED
        return {name: get_key(cfg, name) for name in (*DEFAULTS, *override[::2])}

    def there(*override):
        cfg = base.clone()
        try:
            cfg.merge_from_list(list(override))
            check(cfg)
        except (ConfigError, ValueError, AssertionError, OverflowError, KeyError):
            return REFUSED
        return {name: get_key(cfg, name) for name in (*DEFAULTS, *override[::2])}

    return lambda *override: (here(*override), there(*override))


def literal(text):
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def differs_by_nature(name: str, text: str) -> bool:
    default, value = DEFAULTS[name], literal(text)
    cut_off = isinstance(default, int) and isinstance(value, float)
    bare = isinstance(default, str) and not isinstance(value, str)
    return name in ON_FS or (cut_off and not value.is_integer()) or bare


#: A key of each section and type of value.
SOME = {(n.rpartition(".")[0], type(value)): n for n, value in DEFAULTS.items()}


@pytest.mark.parametrize("text", ["-1", "2.0", "True", "abc", "[1]"])
@pytest.mark.slow
def test_any_text_means_the_same_at_any_key(values, text):
    for name in SOME.values():
        if not differs_by_nature(name, text):
            here, there = values(name, text)
            assert _without_process_num(here) == _without_process_num(there), name


def _without_process_num(found):
    """FS rewrites it to the number of its GPUs."""
    if found == REFUSED:
        return found
    return {k: v for k, v in found.items() if k != "federate.process_num"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "here_is", "there_is"),
    [
        (["federate.client_num", "4.5"], REFUSED, 4),
        (["expname", "2024"], "2024", REFUSED),
        (["data.root", "[a]"], "[a]", "[a]"),
        (["train.optimizer.nesterov", "True"], True, True),
        (["check_completeness", "True"], REFUSED, True),
        (["print_decimal_digits", "3"], REFUSED, 3),
        (
            ["federate.mode", "distributed", "distribute.role", "server"],
            REFUSED,
            "distributed",
        ),
    ],
)
def test_the_known_differences(values, override, here_is, there_is):
    here, there = values(*override)
    name = override[0]
    for found, expected in ((here, here_is), (there, there_is)):
        if expected == REFUSED:
            assert found == REFUSED
        else:
            assert found[name] == expected


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=str)
def test_every_example_has_the_same_values(federatedscope, example):
    from federatedscope_ggeur.engines.fs.config import check

    here, there = load_config(example), merged(example)
    check(there)
    for name in DEFAULTS.keys() - {"federate.process_num"}:
        assert get_key(there, name) == get_key(here, name), name
    optimizer = {k: v for k, v in there.train.optimizer.items() if "__" not in k}
    optimizer.pop("is_ready_for_run")
    assert optimizer == dict(here.train.optimizer)


@pytest.mark.parametrize(
    ("given", "wrong", "right"),
    [
        ("use: True", "use: True\n  steps: [3]", ["ggeur.steps", "[1]"]),
        ("client_num: 4", "client_num: 2147483648", ["federate.client_num", "4"]),
        ("method: ggeur", "method: FedAvg", ["federate.method", "ggeur"]),
        ("type: ggeur_head", "type: convnet2", ["model.type", "ggeur_head"]),
    ],
)
def test_a_wrong_value_in_the_file_can_be_overridden(
    federatedscope, rewritten, given, wrong, right
):
    from federatedscope_ggeur.engines.fs.config import check

    path = rewritten((given, wrong))
    with pytest.raises(ConfigError):
        load_config(path)
    with pytest.raises(ConfigError):
        check(merged(path))
    assert load_config(path, right).ggeur.use
    check(merged(path, right))


@pytest.mark.parametrize("plugin_first", [False, True])
def test_a_number_of_clients_that_comes_later_counts(
    federatedscope, quickstart, plugin_first
):
    """FS writes the number of clients in place of sample_client_num: -1."""
    cfg = merged(quickstart, ["federate.client_num", "9"], plugin_first=plugin_first)
    assert cfg.federate.sample_client_num == -1
    cfg.freeze(inform=False, save=False)
    assert cfg.federate.sample_client_num == -1


def test_a_command_line_adds_keys_to_open_sections_as_a_file_does(federatedscope):
    words = ["train.optimizer.momentum", 0.9, "train.optimizer.nesterov", True]
    words += ["train.scheduler.type", "StepLR", "train.scheduler.step_size", 2]
    cfg = merged(EXAMPLES / "ggeur_quickstart.yaml", words)
    assert [get_key(cfg, name) for name in words[::2]] == words[1::2]
