"""The method that a checked config asks for, and what all sides must have alike."""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur import get_key
from federatedscope_ggeur.cfg_ggeur.fs_keys import SERVER_SECTION, settings_in
from federatedscope_ggeur.methods import AUGMENTATIONS, Method, build_method

#: Methods that FS has settings for, and where.
_OF_FS = {"fedprox": "fedprox", "fedopt": SERVER_SECTION}


def method_of(cfg) -> Method:
    """The method of ``ggeur.base_method``, with the rival of ``ggeur.augmentation``."""
    ggeur = cfg.ggeur
    return build_method(
        ggeur.base_method,
        ggeur.augmentation,
        rival_settings(cfg),
        **method_settings(cfg),
    )


def method_settings(cfg) -> dict:
    """The settings of ``ggeur.base_method``: FS's keys where it has some, else ours."""
    name = cfg.ggeur.base_method
    if name not in _OF_FS:
        return settings_in(cfg.ggeur[name]) if name in cfg.ggeur else {}
    found = settings_in(get_key(cfg, _OF_FS[name]))
    return {"mu": found["mu"]} if name == "fedprox" else found


#: Settings of rivals that count something; in a config they are floats.
_COUNTS = ("batch_size", "noise_dim", "hidden", "steps")


def rival_settings(cfg) -> dict:
    """The settings of the rival that ``ggeur.augmentation`` names; none without one."""
    name = cfg.ggeur.augmentation
    found = settings_in(cfg.ggeur[name]) if name in AUGMENTATIONS else {}
    return {key: int(v) if key in _COUNTS else v for key, v in found.items()}


#: Settings that every process of a federation must have alike.
_AGREED = (
    "seed",
    "ggeur.base_method",
    "ggeur.augmentation",
    "ggeur.steps",
    "ggeur.mlp_hidden_dim",
    "ggeur.closed_form",
    "ggeur.init",
    "ggeur.statistics",
    "ggeur.calibrate",
)


def agreed_settings(cfg) -> dict[str, str]:
    """The settings in `cfg` that every process must have alike, as texts."""
    settings = {name: get_key(cfg, name) for name in _AGREED}
    base, rival = cfg.ggeur.base_method, cfg.ggeur.augmentation
    for section, found in (
        (_OF_FS.get(base, f"ggeur.{base}"), method_settings(cfg)),
        (f"ggeur.{rival}", rival_settings(cfg)),
        *((f"ggeur.{name}", settings_in(cfg.ggeur[name])) for name in _sections(cfg)),
    ):
        settings.update({f"{section}.{name}": v for name, v in found.items()})
    return {name: str(value) for name, value in settings.items()}


def _sections(cfg) -> tuple[str, ...]:
    """Where the settings of the head in closed form stand."""
    kind = cfg.ggeur.closed_form
    return {"lda": ("lda",), "qda": ("lda", "qda"), "ridge": ("ridge",)}.get(kind, ())
