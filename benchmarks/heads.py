"""One hash for the head and one for the scores of each of many short runs.

A change that is to leave every number as it is prints the same lines before and after:

    python benchmarks/heads.py > before.txt
    python benchmarks/heads.py --against before.txt
    python benchmarks/heads.py kept sums       # runs named so

The runs cover every method, augmentation, closed form, way of calibration, text part,
network, secure sums, compressed statistics, and a run that goes on from a checkpoint.
All are of the embedded engine; the tests in tests/engines/fs hold FederatedScope's
engines to the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import Results, numbers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from digits_network import digits_words
from every_method import words

#: Three rounds on `write_embeddings`.
SHORT = [
    *("data.type", "embeddings@ggeur"),
    *("data.splitter", "lds", "data.splitter_args", "[{'alpha': 1.0}]"),
    *("federate.client_num", "6", "federate.total_round_num", "3"),
    *("ggeur.step1_size", "20", "ggeur.step2_size", "10"),
]
SUMS = [
    *("ggeur.privacy.secure_sums", "statistics"),
    *("ggeur.privacy.secure_sums_radius", "40"),
    *("ggeur.privacy.secure_sums_max_rows", "4096"),
    *("ggeur.privacy.secure_sums_fraction_bits", "38"),
]
GEOMETRY_OF_SUMS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]
FROM_LDA = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"]
NO_TOTALS = ["ggeur.step1_size", -1, "ggeur.step2_size", -1]
TRAINED = [
    ("ggeur", []),
    ("none", ["ggeur.steps", "[]"]),
    ("step 1", ["ggeur.steps", "[1]"]),
    ("step 2", ["ggeur.steps", "[2]"]),
    ("by client", ["ggeur.prototypes", "client", "ggeur.scale", "eigenvalue"]),
    ("fresh noise", ["ggeur.noise", "fresh"]),
    ("release", ["ggeur.sizes", "release"]),
    ("document", ["ggeur.sizes", "document", *NO_TOTALS]),
    ("pooled geometry", ["ggeur.geometry", "pooled"]),
    ("raw", ["ggeur.space", "raw"]),
    ("mlp", ["ggeur.mlp_hidden_dim", 8]),
    ("unseen domain", ["ggeur.unseen_domains", "['art']"]),
    ("unseen clients", ["federate.unseen_clients_rate", 0.34]),
    ("sampled", ["federate.sample_client_num", 3, "ggeur.max_share", 0.4]),
    ("validation", ["data.splits", "[0.6, 0.2, 0.2]", "eval.split", "['test','val']"]),
    ("server scores", ["federate.make_global_eval", True]),
    ("few rows", ["ggeur.privacy.min_samples", 9]),
    (
        "withheld rows",
        ["ggeur.privacy.train_withheld", False, "ggeur.weight", "statistics"],
    ),
]


def runs() -> Iterator[tuple[str, list]]:
    """The name of each run on embeddings, and its settings."""
    yield from TRAINED
    for name in METHODS:
        yield f"method {name}", words(name)
        yield f"method {name} without steps", [*words(name), "ggeur.steps", "[]"]
        yield f"method {name} mlp", [*words(name), "ggeur.mlp_hidden_dim", 8]
    for name in AUGMENTATIONS:
        yield (
            f"augmentation {name}",
            ["ggeur.augmentation", name, "ggeur.privacy.min_samples", 1],
        )
    for name in CLOSED_FORMS:
        chosen = ["ggeur.closed_form", name]
        yield f"closed form {name}", chosen
        yield f"closed form {name}, threshold 1", [*chosen, *MIN_1]
        yield f"start {name}", [*chosen, "ggeur.init", "closed_form"]
        yield (
            f"kept {name}",
            [*chosen, "ggeur.init", "closed_form", "ggeur.keep", "best"],
        )
        yield f"sums {name}", [*chosen, *SUMS]
        for content in ("summed", "means", "compressed"):
            yield f"{content} {name}", [*chosen, "ggeur.statistics", content]
        yield f"confounded {name}", [*chosen, *DOMAINS, *MIN_1]
    yield (
        "kept validation",
        [
            *FROM_LDA,
            *("ggeur.keep", "best", "data.splits", "[0.6, 0.2, 0.2]"),
        ],
    )
    for name, more in (
        ("prior", ["ggeur.text.prior", 4]),
        ("ensemble", ["ggeur.text.ensemble", 1]),
        ("both", ["ggeur.text.prior", 4, "ggeur.text.ensemble", 1]),
    ):
        yield f"text {name}", ["ggeur.closed_form", "auto", *more]
    fedclip = ["ggeur.text.model", "fedclip", "ggeur.steps", "[]"]
    yield "text fedclip", fedclip
    for name, more in TRAINED[:3]:
        yield f"sums {name}", [*SUMS, *GEOMETRY_OF_SUMS, *FROM_LDA, *more]
        yield (
            f"ccvr {name}",
            ["ggeur.calibrate", "ccvr", "ggeur.ccvr.samples", 50, *more],
        )
    yield (
        "ccvr mlp",
        ["ggeur.calibrate", "ccvr", "ggeur.mlp_hidden_dim", 8, *("ggeur.steps", "[]")],
    )
    for dtype in ("int8", "float16", "float32"):
        yield (
            f"compressed {dtype}",
            [
                *FROM_LDA,
                "ggeur.statistics",
                "compressed",
                "ggeur.steps",
                "[]",
                "ggeur.compressed.dtype",
                dtype,
            ],
        )


MIN_1 = ["ggeur.privacy.min_samples", 1]
DOMAINS = ["data.splitter", "domain", "data.splitter_args", "[]"]


def network_runs() -> Iterator[tuple[str, list]]:
    """The same of networks on the bundled digits."""
    small = ["data.splits", "[0.1, 0.0, 0.05]", "federate.total_round_num", 2]
    for name in ("digits_cnn", "convnet5", "simple_cnn"):
        yield f"network {name}", [*small, "ggeur.network.name", name]
    for norm in ("batch", "group", "none"):
        yield f"network norm {norm}", [*small, "ggeur.network.norm", norm]
    for name in METHODS:
        norm = "batch" if name in ("fedbn", "silobn") else "group"
        settings = [*small, *words(name), "ggeur.network.norm", norm]
        yield f"network method {name}", settings
    for name in AUGMENTATIONS:
        more = ["ggeur.privacy.min_samples", 1]
        yield (
            f"network augmentation {name}",
            [
                *small,
                *("ggeur.augmentation", name),
                *more,
            ],
        )


def write_embeddings(folder: Path) -> None:
    """Three small domains of embeddings with text features near their means."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 16)) * 2
    for name, rows in (("art", 240), ("photo", 192), ("sketch", 216)):
        labels = np.arange(rows) % 12
        shift = rng.normal(size=16)
        features = centres[labels] + shift + rng.normal(size=(rows, 16))
        features = features.astype("float32")
        np.savez(folder / f"{name}.npz", features=features, labels=labels)
    text = centres + np.random.default_rng(1).normal(size=(12, 16))
    np.savez(folder / "text.npz", features=text, logit_scale=20.0)


def described(results: Results, head: bytes | None, params: bytes = b"") -> str:
    """The hashes of a run's head and numbers, bytes on the wire apart."""
    found = numbers(results)
    kept = {name: found[name] for name in ("round0", "rounds", "calibrated")}
    text = json.dumps(_without_bytes(kept), sort_keys=True, default=str)
    held = hashlib.sha256((head or b"") + params).hexdigest()
    return f"{held[:16]} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _without_bytes(value):
    if isinstance(value, dict):
        # Without exchanges of plugins, which these runs have none of.
        kept = (k for k in value if "bytes" not in k and k != "exchanges")
        return {k: _without_bytes(value[k]) for k in kept}
    if isinstance(value, list):
        return [_without_bytes(v) for v in value]
    return value


def outcome(source: str, settings: list) -> str:
    """What a run comes to, or why it does not begin."""
    try:
        going = Run(load_config(source, [str(word) for word in settings]))
        results = going.follow(lambda record: None)
    except Exception as error:  # a combination that the package refuses
        said = str(error).splitlines()
        return f"refused {type(error).__name__} {len(said)}"
    server = going.engine.server.params.numpy().tobytes()
    return described(results, going.history.head_bytes(), server)


def restored(folder: Path, base: list) -> Iterator[tuple[str, str]]:
    """Runs of three rounds that go on from a checkpoint after two."""
    for name in ("fedavg", "scaffold", "fedproto"):
        path = folder / f"{name}.checkpoint"
        settings = [*base, *words(name)]
        half = [*settings, "federate.total_round_num", 2, "federate.save_to", path]
        whole = [*settings, "federate.restore_from", path]
        outcome("ggeur_quickstart", half)
        yield f"restored {name}", outcome("ggeur_quickstart", whole)


def all_outcomes(words_of_names: list[str]) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "embeddings"
        folder.mkdir()
        write_embeddings(folder)
        base = [*SHORT, "data.root", folder]

        def chosen(name: str) -> bool:
            return not words_of_names or any(word in name for word in words_of_names)

        for name, settings in runs():
            if chosen(name):
                yield name, outcome("ggeur_quickstart", [*base, *settings])
        if chosen("restored"):
            yield from restored(Path(where), base)
        digits = digits_words(Path(where) / "cache")
        for name, settings in network_runs():
            if chosen(name):
                yield name, outcome("network_quickstart", [*digits, *settings])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only runs whose names hold one")
    parser.add_argument("--against", type=Path, help="lines printed before")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    before = {}
    if options.against:
        lines = options.against.read_text().splitlines()
        before = dict(line.split("\t") for line in lines)
    different = count = 0
    for name, found in all_outcomes(options.words):
        count += 1
        same = not options.against or before.get(name) == found
        different += not same
        print(f"{name}\t{found}" + ("" if same else f"\twas {before.get(name)}"))
        sys.stdout.flush()
    if options.against:
        print(f"{count} runs, {different} different", file=sys.stderr)


if __name__ == "__main__":
    main()
