"""FederatedScope's (FS's) defaults, and the keys of FS that do nothing here.

The module `fs_keys` has the keys that are honoured or refused. This module has all
other keys of FS, since a YAML file of FS may hold them on any engine. A config of the
embedded engine has such a key only if somebody sets it.
"""

from __future__ import annotations

from collections.abc import Iterable

from federatedscope_ggeur.data import NO_TRANSFORM
from federatedscope_ggeur.settings import Rule, rule_of

from .fs_keys import HEAD, TRAINER, FSKey, anything, table
from .keys import get_key
from .transform import row_transform

#: Keys whose default in FS is replaced by the plugin's, because no user chose it.
_STANDS_FOR = {
    "model.type": ("lr", HEAD),
    "criterion.type": ("MSELoss", "CrossEntropyLoss"),
    "trainer.type": ("general", TRAINER),
}


#: What to use instead of some keys without effect.
_INSTEAD = {
    "data.args": "the settings of a reader are below ggeur",
    "data.transform": "the encoder prepares its images itself",
    "dataloader.num_workers": "use ggeur.encoder.num_workers, for decoding images",
    "trainer.disp_freq": "each round is said",
    "trainer.val_freq": "use eval.freq, in rounds",
    "trainer.sam.rho": "use ggeur.base_method fedsam and ggeur.fedsam.rho",
    "model.hidden": "use ggeur.mlp_hidden_dim, the number of hidden units",
}


def _former(name: str, default: object) -> Rule:
    now = {"data.loader": "dataloader.type"}.get(
        name, name.replace("data", "dataloader")
    )
    return rule_of(f"is called {now} now", lambda value: value == default)


def _here_only(default: object) -> Rule:
    problem = f"the embedded engine takes only {default!r}"
    return rule_of(problem, lambda value: value == default)


_IDLE = dict(table("idle"))

#: Every key of FS that `fs_keys` lacks, except keys in sections that take new keys.
OTHER_KEYS = {
    key.name: key
    for key in (
        *(FSKey(name, default, anything) for name, default in _IDLE.items()),
        *(FSKey(name, default, anything) for name, default in table("inert")),
        *(FSKey(n, default, _here_only(default)) for n, default in table("on_fs_only")),
        *(FSKey(n, default, _former(n, default)) for n, default in table("former")),
        FSKey("model.input_shape", (), anything),
    )
}


def settle_defaults(cfg) -> list[str]:
    """Replace FS's default model, criterion and trainer by the plugin's own ones.

    Returns
    -------
    list of str
        The keys that were changed.
    """
    changed = [
        name for name, (default, _) in _STANDS_FOR.items() if _is(cfg, name, default)
    ]
    for name in changed:
        _set(cfg, name, _STANDS_FOR[name][1])
    return changed


def unsettle_defaults(cfg, names: Iterable[str]) -> None:
    """Restore FS's defaults for the keys `names`.

    This is for a config in which the plugin was switched off later.
    """
    for name in names:
        default, ours = _STANDS_FOR[name]
        if _is(cfg, name, ours):
            _set(cfg, name, default)


def _is(cfg, name: str, value: object) -> bool:
    return get_key(cfg, name) == value


def _set(cfg, name: str, value: object) -> None:
    section, key = name.split(".")
    cfg[section][key] = value


def idle_notes(cfg) -> list[str]:
    """A note on settings that have no effect here but differ from FS's defaults."""
    found = []
    for name, default in _IDLE.items():
        try:
            value = get_key(cfg, name)
        except KeyError:
            continue
        if name == "data.transform" and row_transform(cfg) != NO_TRANSFORM:
            continue
        if value != default:
            instead = _INSTEAD.get(name)
            found.append(f"{name} ({instead})" if instead else name)
    return [f"these settings have no effect here: {', '.join(found)}"] if found else []
