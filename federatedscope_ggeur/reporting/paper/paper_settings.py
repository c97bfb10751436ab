"""What the paper says of the settings that its tables were made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TABLE_8, TABLE_9, APPENDIX_B, APPENDIX_C = "Table 8", "Table 9", "App. B", "App. C"


@dataclass(frozen=True)
class Stated:
    """A setting as the paper has it.

    Attributes
    ----------
    value : Any
        None where the paper does not say.
    source : str
        Where it says so, and what to know about it.
    """

    value: Any
    source: str = "the paper does not say"


NOT_STATED = Stated(None)
#: Of every table with runs. A key below ``data.splitter_args`` is one of that dict.
_ALWAYS = {
    "ggeur.encoder.name": Stated(
        "open_clip", "4.1: CLIP; by which library is not said"
    ),
    "ggeur.encoder.model": Stated("ViT-B-16", TABLE_8),
    "ggeur.encoder.pretrained": Stated("openai", "4.1 cites CLIP's own paper"),
    "ggeur.encoder.normalize": NOT_STATED,
    "ggeur.mlp_hidden_dim": Stated(0, "4.1: a single-layer MLP"),
    "ggeur.closed_form": Stated("none", "3.2: the head is trained; no other is named"),
    "ggeur.init": Stated("random", "3.2: no start of the training is named"),
    "ggeur.keep": Stated("trained", "3.2: the head is trained; no other is named"),
    "ggeur.space": Stated(
        "raw", "3.2: embeddings as they are; no other space is named"
    ),
    "ggeur.scale": Stated("eigenvalue", "Eq. 5; the authors' code has covariance"),
    "ggeur.privacy.min_samples": NOT_STATED,
    "train.optimizer.type": Stated("SGD", APPENDIX_C),
    "train.optimizer.momentum": Stated(0.9, APPENDIX_C),
    "train.optimizer.weight_decay": Stated(1e-5, APPENDIX_C),
    "train.local_update_steps": Stated(10, f"{APPENDIX_C}: U = 10 local rounds"),
    "train.batch_or_epoch": Stated("epoch", "as in the benchmark that App. C follows"),
    "federate.sample_client_num": NOT_STATED,
    "federate.ignore_weight": NOT_STATED,
    "seed": NOT_STATED,
    "seeds": NOT_STATED,
    "score": Stated("mean of the last five rounds", "4.1, Evaluation Metrics"),
}
_LABEL_SKEW = {
    "data.splitter": Stated("lda", f"4.1 and {APPENDIX_B}: Dirichlet"),
    "data.splitter_args.min_per_class": Stated(
        0, "no row is dealt beforehand; code: 1"
    ),
    "ggeur.step1_size": Stated(2000, "3.2.1"),
}
_DOMAIN_SKEW = {
    "data.splitter": Stated("domain", APPENDIX_B),
    "ggeur.step1_size": Stated(500, "3.2.2"),
    "ggeur.step2_size": Stated(500, "3.2.2"),
    "ggeur.prototypes": Stated("domain", "3.2.2: class prototypes of other domains"),
}
_BATCH = "Table 8; App. C says 64 for all sets"


def said_of(name: str, sets: Mapping[str, Mapping[str, float]]) -> dict[str, Stated]:
    """What holds for a whole table.

    Parameters
    ----------
    name : str
        Of a table with runs, such as ``"table7"``.
    sets : dict of data set to dict
        Table 8, as far as the table has these data sets.
    """
    kind = _LABEL_SKEW if name in ("table1", "table2", "table3", "table10") else {}
    said = {**_ALWAYS, **(kind or _DOMAIN_SKEW)}
    if not kind:
        fraction = 0.1 if name in ("table4", "table11") else 0.3
        said["data.splitter_args.fraction"] = Stated(fraction, APPENDIX_B)
    if name == "table7":
        del said["data.splitter_args.fraction"]
        said["data.splitter"] = Stated("lds", f"4.1 and {APPENDIX_B}")
        said["data.splitter_args.alpha"] = Stated(0.1, "the table's title: beta")
    if name == "table10":
        said["data.splitter_args.alpha"] = Stated(0.1, "the table's head: beta")
    if name in ("table5", "table6", "table7"):
        said["data.splits"] = NOT_STATED
    for key in next(iter(sets.values())):
        values = {row[key] for row in sets.values()}
        if "." in key and len(values) == 1:
            source = _BATCH if key == "dataloader.batch_size" else TABLE_8
            said[key] = Stated(_whole(values.pop()), source)
    if name == "table10":
        del said["federate.client_num"]  # what the table varies
    said["ggeur.encoder.image_size"] = Stated(224, TABLE_8)
    return said


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def stated_at(config: Mapping[str, Any], key: str) -> Any:
    """The value of `key`, with dots, in a run's `config`; None where it has none.

    A key below ``data.splitter_args`` is looked for in the dicts of that list.
    """
    value: Any = config
    for part in key.split("."):
        if isinstance(value, (list, tuple)):
            value = next((v for v in value if isinstance(v, Mapping) and part in v), {})
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
