"""Find runs that leave the same one-shot head, whatever else they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import get_key
from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, options_of
from federatedscope_ggeur.cfg_ggeur.run_settings import encoding_settings
from federatedscope_ggeur.cfg_ggeur.transform import preparing
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.data import find_reader
from federatedscope_ggeur.errors import listed
from federatedscope_ggeur.models import CLOSED_FORMS

_MOST_NAMED = 20


def left_head(cfg) -> tuple[str, str] | None:
    """The one-shot head that may be the result of a run with `cfg`.

    Returns
    -------
    tuple of str, or None
        The name of the closed form, and all settings on which the head depends, as
        text. Runs with the same texts and seed have the same head. None if the result
        is a trained or a calibrated head.
    """
    demands = demands_of(cfg)
    alone = demands.closed_form and not demands.trains
    if demands.calibrates or not (alone or demands.keeps_best):
        return None
    return cfg.ggeur.closed_form, repr(_made_of(cfg))


def same_head_note(form: str, names: Sequence[str]) -> str:
    """A note on rows whose runs have one head, of the closed form `form`."""
    return (
        f"these rows have one and the same head in closed form ({form}), and may keep "
        f"it in place of one that they train: {listed(names, _MOST_NAMED)}. To compare "
        "trained heads, set ggeur.keep: trained, or ggeur.closed_form: none and "
        "ggeur.init: random"
    )


def _made_of(cfg) -> list:
    """The settings on which a head in closed form depends.

    These are the settings of the rows, of their division over clients, of the
    statistics, and of the closed form.
    """
    ggeur, federate = cfg.ggeur, cfg.federate
    reader = find_reader(cfg.data.type)
    rows = [to_plain(cfg.data), encoding_settings(ggeur), options_of(reader, ggeur)]
    held_by = [
        *(federate.client_num, federate.unseen_clients_rate),
        list(ggeur.unseen_domains),
    ]
    told = [to_plain(ggeur.privacy), to_plain(ggeur.compressed), ggeur.statistics]
    forms = [
        (name, to_plain(ggeur[name]))
        for name in _forms(ggeur.closed_form)
        if CLOSED_FORMS.find(name).SETTINGS
    ]
    pooled = base_method(cfg).pools_data
    return [*rows, *held_by, *told, forms, ggeur.temperature, pooled, _of_extras(cfg)]


def _of_extras(cfg) -> list:
    """The settings of the extra that prepares something for the run."""
    used = preparing(cfg)
    names = sorted(used.own_names) if used is not None else ()
    return [get_key(cfg.ggeur, name) for name in names]


def _forms(name: str) -> Iterator[str]:
    """Yield `name` and the names of the closed forms whose settings it reads."""
    yield name
    for other in CLOSED_FORMS.find(name).READS:
        yield from _forms(other)
