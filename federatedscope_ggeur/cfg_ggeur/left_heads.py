"""Runs that leave a one-shot head whatever they train, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.encoding import encoding_settings
from federatedscope_ggeur.cfg_ggeur.method_settings import base_method, options_of
from federatedscope_ggeur.cfg_ggeur.yaml_file import to_plain
from federatedscope_ggeur.data import find_reader
from federatedscope_ggeur.models import CLOSED_FORMS

_MOST_NAMED = 20


@dataclass(frozen=True)
class LeftHead:
    """A head in closed form that a run leaves.

    Attributes
    ----------
    closed_form : str
        Its name.
    made_of : str
        All settings that it depends on. Runs with the same settings and seed have the
        same head.
    trains : bool
        Whether the run trains another head, and leaves this one if it is better.
    validated : bool
        Whether rows for validation choose between the two.
    pools : bool
        Whether the rows of all clients are pooled first.
    """

    closed_form: str
    made_of: str
    trains: bool
    validated: bool
    pools: bool = False


def left_head(cfg) -> LeftHead | None:
    """The head in closed form that a run of `cfg` leaves or may leave.

    None if it leaves a trained or a calibrated head."""
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
    """A note for each head that several runs of one seed leave.

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
    """A note on rows that pool what the others hold apart."""
    return (
        f"these rows pool the clients' rows: {_named(pooled)}. Their head in closed "
        f"form ({form}) equals, up to rounding, that of: {_named(own)}, if nothing is "
        "withheld and the head does not depend on who holds which rows"
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
            f"these rows leave {rows}, and train none: {named}. To train a head, set "
            "ggeur.closed_form: none; to train from this one, set ggeur.init: "
            "closed_form"
        )
    when = "unless labels and domains are confounded or much is withheld"
    if any(head.validated for head in heads):
        when = "if validation rows prefer it to the trained one"
    return (
        f"these rows keep {rows}, {when}: {named}. To compare what they train, set "
        "ggeur.keep: trained; to compare heads that are only trained, also set "
        "ggeur.closed_form: none and ggeur.init: random"
    )


def _made_of(cfg) -> list:
    """The settings of the rows, of who holds them, of statistics, and of the head."""
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
    return [*rows, *held_by, *told, forms, ggeur.temperature, to_plain(ggeur.text)]


def _forms(name: str) -> Iterator[str]:
    """The closed form `name`, and the forms whose settings it reads."""
    yield name
    for other in CLOSED_FORMS.find(name).READS:
        yield from _forms(other)
