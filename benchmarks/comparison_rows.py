"""The settings and the rows of comparison.py, each as the keys that it sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMON = {
    "data.type": "embeddings@ggeur",
    "dataloader.batch_size": 64,
    "eval.freq": 2,
    "federate.make_global_eval": True,
    "federate.total_round_num": 20,
    # Embeddings as they are, each setting at a rate that suits them: spaces.py has the
    # default space.
    "ggeur.space": "raw",
    "train.batch_or_epoch": "batch",
}
PACS = {
    "federate.client_num": 4,
    "ggeur.step1_size": 200,
    "ggeur.step2_size": 200,
    "train.local_update_steps": 100,
    "train.optimizer.lr": 0.01,
}
CALTECH = {
    "data.splitter": "lda",
    "data.splitter_args": [{"alpha": 0.1}],
    "federate.client_num": 10,
    "ggeur.prototypes": "client",
    "ggeur.step1_size": 50,
    "ggeur.step2_size": 10,
    "train.local_update_steps": 50,
    "train.optimizer.lr": 1.0,
}
#: For each setting the folder of its embeddings below --root, and its config.
SETTINGS = {
    "PACS domain": (
        "pacs_mobilenetv2",
        {
            **PACS,
            "data.splitter": "domain",
            "data.splitter_args": [{"fraction": 0.3}],
        },
    ),
    "PACS lds": (
        "pacs_mobilenetv2",
        {**PACS, "data.splitter": "lds", "data.splitter_args": [{"alpha": 0.1}]},
    ),
    "Caltech lda": ("caltech101_clip", CALTECH),
    "Caltech lda, threshold 1": (
        "caltech101_clip",
        {**CALTECH, "ggeur.privacy.min_samples": 1},
    ),
}
#: For a setting the one that it differs from in the min-count threshold alone.
THRESHOLD_ONLY = {"Caltech lda, threshold 1": "Caltech lda"}
QUICK = {
    "eval.freq": 1,
    "federate.total_round_num": 2,
    "train.local_update_steps": 5,
    "ggeur.step1_size": 20,
    "ggeur.step2_size": 5,
}
QUICK_MARK = " (quick)"
QUICK_ROWS = ("FedAvg, ", "SCAFFOLD", "closed form", "local", "centralised")

METHODS = {
    "FedAvg": {"ggeur.base_method": "fedavg"},
    "FedProx": {"ggeur.base_method": "fedprox", "fedprox.mu": 0.1},
    "FedProx, mu 0.01": {"ggeur.base_method": "fedprox", "fedprox.mu": 0.01},
    "SCAFFOLD": {"ggeur.base_method": "scaffold", "ggeur.scaffold.server_lr": 0.25},
    "MOON": {"ggeur.base_method": "moon"},
    "FedDyn": {"ggeur.base_method": "feddyn"},
    "FedOpt": {
        "ggeur.base_method": "fedopt",
        "fedopt.optimizer.type": "SGD",
        "fedopt.optimizer.lr": 0.5,
        "fedopt.optimizer.momentum": 0.9,
    },
    "FedAvgM": {"ggeur.base_method": "fedavgm"},
    "FedProto": {"ggeur.base_method": "fedproto"},
    "FedNTD": {"ggeur.base_method": "fedntd"},
}
CENTRALISED = "centralised"
NONE, BOTH = "none", "GGEUR 1+2"
GGEUR = {
    NONE: {"ggeur.steps": []},
    "GGEUR 1": {"ggeur.steps": [1]},
    BOTH: {"ggeur.steps": [1, 2]},
}
AUGMENTATIONS = ("FedMix", "FedGen", "FedFA")
CLOSED_FORMS = ("NCM", "LDA", "ridge", "mixture", "auto")

Row = tuple[str, str]
Config = dict[str, object]


def table_rows() -> dict[Row, Config]:
    """The (method, variant) of each row, with its settings."""
    rows = {
        (method, variant): {**of_method, **steps}
        for method, of_method in METHODS.items()
        for variant, steps in GGEUR.items()
    }
    epoch = {"train.batch_or_epoch": "epoch", "train.local_update_steps": 1}
    rows["FedAvg, 1 epoch", NONE] = {**GGEUR[NONE], **epoch}
    rows["FedAvg, original weights", BOTH] = {**GGEUR[BOTH], "ggeur.weight": "original"}
    for name in AUGMENTATIONS:
        rows["FedAvg", name] = {"ggeur.augmentation": name.lower()}
    for kind in CLOSED_FORMS:
        rows["closed form", kind] = {"ggeur.closed_form": kind.lower()}
    rows["closed form", "LDA, shrinkage 0.1"] = {
        **rows["closed form", "LDA"],
        "ggeur.lda.shrinkage": 0.1,
    }
    for kind in ("LDA", "ridge"):
        by_class = {"ggeur.statistics": "class"}
        rows["closed form", f"{kind}, by class"] = {
            **rows["closed form", kind],
            **by_class,
        }
    best = {
        "ggeur.closed_form": "auto",
        "ggeur.init": "closed_form",
        "ggeur.keep": "best",
    }
    from_lda = {"ggeur.closed_form": "lda", "ggeur.init": "closed_form"}
    for method, settings, variants in (
        ("FedAvg from LDA", from_lda, (NONE, BOTH)),
        ("FedAvg or auto", best, (BOTH,)),
        ("FedAvg, CCVR", {"ggeur.calibrate": "ccvr"}, (NONE, BOTH)),
        ("local", {"ggeur.base_method": "local"}, (NONE, BOTH)),
        (CENTRALISED, {"ggeur.base_method": "centralised"}, (NONE, "GGEUR 1")),
    ):
        for variant in variants:
            rows[method, variant] = {**settings, **GGEUR[variant]}
    return rows


def depends_on_threshold(config: Config) -> bool:
    """Whether a run sends anything of single classes, which may be held back."""
    keys = ("ggeur.augmentation", "ggeur.calibrate", "ggeur.closed_form")
    return (
        bool(config.get("ggeur.steps"))
        or any(key in config for key in keys)
        or config.get("ggeur.base_method") == "fedproto"
    )


@dataclass(frozen=True)
class Task:
    """One run: what its line is known by, and its config."""

    setting: str
    method: str
    variant: str
    seed: int
    config: Config


def tasks(
    root: Path, settings: Sequence[str], seeds: int, only: Sequence[str], quick: bool
) -> list[Task]:
    """All runs that are asked for, seed by seed, baseline augmentations last of all.

    `only` are parts of "method, variant" of which a row must have one; none: all rows.
    A run that is the same in two settings is there once (`shared_runs`).
    """
    rows = table_rows()
    wanted = [row for row in rows if not only or _matches(row, only)]
    found = []
    for seed in range(seeds):
        for setting in settings:
            for row in wanted:
                name = _setting_of_run(setting, rows[row])
                if name == setting or name not in settings:
                    found.append(_task(root, name, row, seed, quick))
    return sorted(found, key=lambda task: "ggeur.augmentation" in task.config)


def shared_runs() -> Iterator[tuple[str, str, Row]]:
    """(setting, the other one whose run it has too, row), for each such run."""
    for mark in ("", QUICK_MARK):
        for setting in THRESHOLD_ONLY:
            for row, config in table_rows().items():
                other = _setting_of_run(setting, config)
                if other != setting:
                    yield setting + mark, other + mark, row


def _setting_of_run(setting: str, config: Config) -> str:
    """The setting under whose name the run of a row with `config` is kept."""
    return (
        setting
        if depends_on_threshold(config)
        else THRESHOLD_ONLY.get(setting, setting)
    )


def _task(root: Path, setting: str, row: Row, seed: int, quick: bool) -> Task:
    folder, of_setting = SETTINGS[setting]
    config = {**COMMON, **of_setting, "seed": seed}
    config["data.root"] = str(root / folder)
    if quick:
        config.update(QUICK)
    if row[0] == CENTRALISED:
        config["ggeur.step1_size"] *= config["federate.client_num"]
    name = setting + QUICK_MARK if quick else setting
    return Task(name, *row, seed, {**config, **table_rows()[row]})


def _matches(row: Row, texts: Sequence[str]) -> bool:
    return any(text.lower() in ", ".join(row).lower() for text in texts)
