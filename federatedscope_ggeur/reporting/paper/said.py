"""What the paper says of the settings that its tables were made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TABLE_8, TABLE_9, APPENDIX_B, APPENDIX_C = "Table 8", "Table 9", "App. B", "App. C"


@dataclass(frozen=True)
class Said:
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


NOT_SAID = Said(None)
#: Of every table with runs. A key below ``data.splitter_args`` is one of that dict.
_ALWAYS = {
    "ggeur.encoder.name": Said("open_clip", "4.1: CLIP; by which library is not said"),
    "ggeur.encoder.model": Said("ViT-B-16", TABLE_8),
    "ggeur.encoder.pretrained": Said("openai", "4.1 cites CLIP's own paper"),
    "ggeur.encoder.normalize": NOT_SAID,
    "ggeur.mlp_hidden_dim": Said(0, "4.1: a single-layer MLP"),
    "ggeur.closed_form": Said("none", "3.2: the head is trained; no other is named"),
    "ggeur.init": Said("random", "3.2: no start of the training is named"),
    "ggeur.keep": Said("trained", "3.2: the head is trained; no other is named"),
    "ggeur.space": Said("raw", "3.2: embeddings as they are; no other space is named"),
    "ggeur.scale": Said("eigenvalue", "Eq. 5; the authors' code has covariance"),
    "ggeur.privacy.min_samples": NOT_SAID,
    "train.optimizer.type": Said("SGD", APPENDIX_C),
    "train.optimizer.momentum": Said(0.9, APPENDIX_C),
    "train.optimizer.weight_decay": Said(1e-5, APPENDIX_C),
    "train.local_update_steps": Said(10, f"{APPENDIX_C}: U = 10 local rounds"),
    "train.batch_or_epoch": Said("epoch", "as in the benchmark that App. C follows"),
    "federate.sample_client_num": NOT_SAID,
    "federate.ignore_weight": NOT_SAID,
    "seed": NOT_SAID,
    "seeds": NOT_SAID,
    "score": Said("mean of the last five rounds", "4.1, Evaluation Metrics"),
}
_LABEL_SKEW = {
    "data.splitter": Said("lda", f"4.1 and {APPENDIX_B}: Dirichlet"),
    "data.splitter_args.min_per_class": Said(0, "no row is dealt beforehand; code: 1"),
    "ggeur.step1_size": Said(2000, "3.2.1"),
}
_DOMAIN_SKEW = {
    "data.splitter": Said("domain", APPENDIX_B),
    "ggeur.step1_size": Said(500, "3.2.2"),
    "ggeur.step2_size": Said(500, "3.2.2"),
    "ggeur.prototypes": Said("domain", "3.2.2: class prototypes of other domains"),
}
_BATCH = "Table 8; App. C says 64 for all sets"


def said_of(name: str, sets: Mapping[str, Mapping[str, float]]) -> dict[str, Said]:
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
        said["data.splitter_args.fraction"] = Said(fraction, APPENDIX_B)
    if name == "table7":
        del said["data.splitter_args.fraction"]
        said["data.splitter"] = Said("lds", f"4.1 and {APPENDIX_B}")
        said["data.splitter_args.alpha"] = Said(0.1, "the table's title: beta")
    if name == "table10":
        said["data.splitter_args.alpha"] = Said(0.1, "the table's head: beta")
    if name in ("table5", "table6", "table7"):
        said["data.splits"] = NOT_SAID
    for key in next(iter(sets.values())):
        values = {row[key] for row in sets.values()}
        if "." in key and len(values) == 1:
            source = _BATCH if key == "dataloader.batch_size" else TABLE_8
            said[key] = Said(_whole(values.pop()), source)
    if name == "table10":
        del said["federate.client_num"]  # what the table varies
    said["ggeur.encoder.image_size"] = Said(224, TABLE_8)
    return said


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def said_at(config: Mapping[str, Any], key: str) -> Any:
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
