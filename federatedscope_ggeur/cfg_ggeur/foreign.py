"""The settings in a run's folder: somebody's word, and not the user's.

Nothing is imported because of them, and without the user's word nothing outside the
folder is read and nothing downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur.encoding import encoder_settings
from federatedscope_ggeur.cfg_ggeur.keys import all_keys, get_key
from federatedscope_ggeur.cfg_ggeur.load import default_config, set_key
from federatedscope_ggeur.cfg_ggeur.plugins import check_loaded
from federatedscope_ggeur.data import ENCODERS, find_reader, is_image_type
from federatedscope_ggeur.data.encoders.keys import ENCODER_KEYS
from federatedscope_ggeur.downloads import refused
from federatedscope_ggeur.errors import ConfigError, UntrustedError, shown
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.reporting import RESULTS_FILE, Results
from federatedscope_ggeur.settings import flatten

TRUST = "--trust"
_CACHE = next(key for key in ENCODER_KEYS if key.name == "encoder.cache")
#: What the model that is left, and how images are embedded and rows prepared, depend
#: on: keys, and sections of ggeur.
_KEYS = (
    *("data.type", "data.root", "data.transform", "model.dropout", "ggeur.use"),
    *(f"ggeur.privacy.dp.{name}" for name in ("epsilon", "project", "project_seed")),
)
_SECTIONS = {
    *("encoder", "network", "text", "closed_form", "init", "keep"),
    "mlp_hidden_dim",
}
_LISTED = 25


def config_left(results: Results) -> CfgNode:
    """What the model that a run left and its encoder depend on, each key checked; all
    else is at its default, and needs no plugin.

    Raises
    ------
    UntrustedError
        It takes a plugin that the run names and that is not loaded.
    ConfigError
        Wrong keys or values.
    """
    said = dict(flatten(results.config))
    parts = [said.get("ggeur.encoder.name"), said.get("ggeur.text.model")]
    cfg, problems = default_config(), {}
    for key, value in said.items():
        top, section = f"{key}..".split(".")[:2]
        if key in _KEYS or (top == "ggeur" and section in [*_SECTIONS, *parts]):
            problem = set_key(cfg, key, value)
            problems.update({key: problem} if problem else {})
    for key in all_keys():
        if problem := key.rule(get_key(cfg.ggeur, key.name)):
            problems.setdefault(f"ggeur.{key.name}", problem)
    if problems or cfg.ggeur.encoder.name not in ENCODERS:
        check_loaded(said.items())
    if problems:
        lines = [f"  {key:.100}: {problem}" for key, problem in problems.items()]
        head = f"wrong settings in the run's {RESULTS_FILE}:"
        raise ConfigError(Lines([head, *lines[:_LISTED]]))
    return cfg


def places_of_encoder(cfg: CfgNode) -> Iterator[tuple[str, object]]:
    """Keys and values by which a run's settings send its encoder to this machine's
    files, or its own settings that might."""
    settings = encoder_settings(cfg.ggeur)
    part = ENCODERS.get(settings.name)
    if part is None:
        return
    for name in part.places(settings):
        yield f"ggeur.encoder.{name}", getattr(settings, name)
    for key in part.SETTINGS:
        value, is_choice = settings.options[key.name], hasattr(key.rule, "choices")
        if isinstance(value, str) and value != key.default and not is_choice:
            yield f"ggeur.{part.name}.{key.name}", value


def places_of_data(cfg: CfgNode) -> Iterator[tuple[str, object]]:
    """The same of a run's data set: where its rows are, are embedded and are kept."""
    if not find_reader(cfg.data.type).bundled:
        yield "data.root", cfg.data.root
    if is_image_type(cfg.data.type):
        yield from places_of_encoder(cfg)
        if cfg.ggeur.encoder.cache != _CACHE.default:
            yield "ggeur.encoder.cache", cfg.ggeur.encoder.cache


def check_places(folder: Path, places: Iterator[tuple[str, object]]) -> None:
    """Refuse to follow settings of the run in `folder` to places outside it.

    Raises
    ------
    UntrustedError
        There are any; they are named.
    """
    named = "; ".join(f"{key} {shown(value)}" for key, value in places)
    if named:
        raise UntrustedError(
            Lines(
                [
                    f"the settings of the run in '{folder}' name places outside it: "
                    f"{named}",
                    f"They are read on your word alone: add {TRUST} if you know where "
                    "the folder comes from (in Python: trust=True).",
                ]
            )
        )


def downloads_if(trust: bool) -> AbstractContextManager[None]:
    """Nothing is downloaded inside, but with trust."""
    if trust:
        return nullcontext()
    return refused(f"a run's folder asks for it; {TRUST} allows it (trust=True)")
