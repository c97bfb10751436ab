"""Use the settings in a run's folder safely: another person may have written them.

These settings never make this program import a module. Only with the user's consent do
they make it read files outside the folder or download anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from yacs.config import CfgNode

from federatedscope_ggeur.data import ENCODERS, EncoderSettings
from federatedscope_ggeur.downloads import refused
from federatedscope_ggeur.errors import ConfigError, UntrustedError, shown
from federatedscope_ggeur.models import CLOSED_FORMS, OTHER_MODELS
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.reporting import RESULTS_FILE, Results
from federatedscope_ggeur.settings import flatten

from .keys import all_keys, get_key, read, removed_key
from .load import default_config, set_key
from .plugins import check_loaded
from .run_settings import encoder_settings

TRUST = "--trust"
#: The keys and sections of ggeur on which these depend: the model that a run leaves,
#: the embedding of images, and the preparation of rows.
_KEYS = (
    *("data.type", "data.root", "data.transform", "model.dropout", "ggeur.use"),
    *(f"ggeur.{key.name}" for key in all_keys() if key.prepares_rows),
)
_SECTIONS = {"encoder", "closed_form", "init", "keep", "mlp_hidden_dim"}
_LISTED = 25


def config_left(results: Results) -> CfgNode:
    """A config with the settings on which a run's model and its encoder depend.

    Each key is checked. All other keys have their defaults, so that they need no
    plugin. What an older release had is ignored: the run is over, and its model is in
    its folder.

    Raises
    ------
    UntrustedError
        The settings need a plugin that is not loaded.
    ConfigError
        Keys or values are wrong.
    """
    said = dict(flatten(results.config))
    parts = [said.get("ggeur.encoder.name")]
    for name in OTHER_MODELS:
        parts += [name.partition(".")[0], said.get(f"ggeur.{name}")]
    cfg, problems = default_config(), {}
    for key, value in said.items():
        was_form = key == "ggeur.closed_form" and CLOSED_FORMS.removed(value)
        if was_form or removed_key(key):
            continue
        top, section = f"{key}..".split(".")[:2]
        if key in _KEYS or (top == "ggeur" and section in [*_SECTIONS, *parts]):
            problem = set_key(cfg, key, value)
            problems.update({key: problem} if problem else {})
    for key in all_keys():
        if problem := key.rule(get_key(cfg.ggeur, key.name)):
            problems.setdefault(f"ggeur.{key.name}", problem)
    if problems or read(cfg.ggeur, EncoderSettings).name not in ENCODERS:
        check_loaded(said.items())
    if problems:
        lines = [f"  {key:.100}: {problem}" for key, problem in problems.items()]
        head = f"wrong settings in the run's {RESULTS_FILE}:"
        raise ConfigError(Lines([head, *lines[:_LISTED]]))
    return cfg


def places_of_encoder(cfg: CfgNode) -> Iterator[tuple[str, object]]:
    """Yield keys and values that make a run's encoder read files on this machine.

    The settings of a user's own encoder are included if they may name files.
    """
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


def check_places(folder: Path, places: Iterator[tuple[str, object]]) -> None:
    """Raise an error if settings of the run in `folder` name places outside it.

    Raises
    ------
    UntrustedError
        There are such `places`; the message names them.
    """
    named = "; ".join(f"{key} {shown(value)}" for key, value in places)
    if named:
        said = [
            f"the settings of the run in '{folder}' name places outside this folder: "
            f"{named}",
            f"To allow reading them, add {TRUST} (in Python: trust=True); do so only "
            "if you know where the folder comes from.",
        ]
        raise UntrustedError(Lines(said))


def downloads_if(trust: bool) -> AbstractContextManager[None]:
    """A context that forbids downloads, unless `trust` is True."""
    if trust:
        return nullcontext()
    return refused(
        f"a run's folder asks for one; {TRUST} allows them (in Python: trust=True)"
    )
