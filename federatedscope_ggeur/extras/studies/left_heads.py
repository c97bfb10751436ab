"""Find runs that leave the same one-shot head, whatever else they train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import get_key
from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, options_of
from federatedscope_ggeur.cfg_ggeur.run_settings import encoding_settings
from federatedscope_ggeur.cfg_ggeur.transform import preparing
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.data import find_reader
from federatedscope_ggeur.models import CLOSED_FORMS

_MOST_NAMED = 20


@dataclass(frozen=True)
class LeftHead:
    """A head in closed form that a run leaves or may leave.

    Attributes
    ----------
    closed_form : str
        The name of the closed form.
    made_of : str
        All settings on which the head depends, as text. Runs with the same text and
        seed have the same head.
    trains : bool
        Whether the run also trains a head, and leaves the better of the two.
    validated : bool
        Whether validation rows choose between the two heads.
    pools : bool
        Whether the rows of all clients are pooled first.
    """

    closed_form: str
    made_of: str
    trains: bool
    validated: bool
    pools: bool = False


def left_head(cfg) -> LeftHead | None:
    """The one-shot head that may be the result of a run with `cfg`.

    None if the result is a trained or a calibrated head.
    """
    demands = demands_of(cfg)
    alone = demands.closed_form and not demands.trains
    if demands.calibrates or not (alone or demands.keeps_best):
        return None
    validated = cfg.data.splits[1] > 0 and "val" in cfg.eval.split
    name, made_of = cfg.ggeur.closed_form, _made_of(cfg)
    pools = base_method(cfg).pools_data
    free = any(CLOSED_FORMS.find(form).partition_free for form in _forms(name))
    if pools and (not free or cfg.ggeur.statistics == "compressed"):
        made_of.append("pooled")  # never the same head as without pooling
    return LeftHead(name, repr(made_of), demands.trains, validated, pools)


def same_head_notes(heads: Mapping[LeftHead, Sequence[str]]) -> list[str]:
    """A note for each head that several runs with one seed leave.

    Parameters
    ----------
    heads : mapping from LeftHead to names of runs
    """
    by_head: dict[tuple[str, str], list[tuple[LeftHead, str]]] = {}
    for head, names in heads.items():
        same = by_head.setdefault((head.closed_form, head.made_of), [])
        same += [(head, name) for name in names]
    notes = []
    for same in by_head.values():
        own = [(head, name) for head, name in same if not head.pools]
        pooled = [(head, name) for head, name in same if head.pools]
        for alike in (own, pooled):
            if len(alike) > 1:
                notes.append(_same_head_note(*map(list, zip(*alike))))
        if own and pooled:
            names = [[name for _, name in part] for part in (pooled, own)]
            notes.append(_pooled_note(same[0][0].closed_form, *names))
    return notes


def _pooled_note(form: str, pooled: Sequence[str], own: Sequence[str]) -> str:
    """A note on runs that have the same head, although some pool the clients' rows."""
    return (
        f"these rows pool the clients' data: {_named(pooled)}. Up to rounding, their "
        f"head in closed form ({form}) is the same as the head of: {_named(own)}, if "
        "no client withholds anything and the head does not depend on which client "
        "holds which data"
    )


def _named(names: Sequence[str]) -> str:
    named = "; ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        named += f"; and {len(names) - _MOST_NAMED} more"
    return named


def _same_head_note(heads: Sequence[LeftHead], names: Sequence[str]) -> str:
    rows = f"one and the same head, in closed form ({heads[0].closed_form})"
    named = _named(names)
    if not any(head.trains for head in heads):
        return (
            f"these rows leave {rows}, and train no head: {named}. To train a head, "
            "set ggeur.closed_form: none. To start training from this head, set "
            "ggeur.init: closed_form"
        )
    when = "unless labels and domains are confounded or much is withheld"
    if any(head.validated for head in heads):
        when = "if validation rows prefer it to the trained one"
    return (
        f"these rows keep {rows}, {when}: {named}. To compare the trained heads, set "
        "ggeur.keep: trained. To train them without the closed form, also set "
        "ggeur.closed_form: none and ggeur.init: random"
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
    return [*rows, *held_by, *told, forms, ggeur.temperature, _of_extras(cfg)]


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
