"""Heads on the features of a network that was itself trained federatedly.

`network_quickstart.yaml` trains `digits_cnn` on the bundled digits in four domains, by
FedAvg and by FedFA-l; then `network_then_ggeur.yaml` takes what its last layer takes in
as embeddings of the same clients' rows, for a head by FedAvg, by GGEUR, in closed form,
and the better of the last two by what clients hold. Two ways to divide the digits. AVG
in percent on test rows that neither stage saw: the network's is the mean of its last
five rounds, as a head's is. Gains over the network are paired by seed. All settings
were set beforehand.

    python benchmarks/networks_features.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from measure import report, standard_error

from federatedscope_ggeur import run
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import write_run

CONFIGS = Path(__file__).parents[1] / "scripts/example_configs"
NETWORKS = {
    "FedAvg": {},
    "FedFA-l": {
        "ggeur.augmentation": "fedfa_plus",
        "ggeur.fedfa_plus.variant": "l",
    },
}
DIVISIONS = {
    "label and domain skew": ("lds", [{"alpha": 0.1}]),
    "domain skew": ("domain", []),
}
HEADS = {
    "FedAvg": {"ggeur.steps": []},
    "GGEUR": {},
    "closed form": {"ggeur.closed_form": "auto"},
    "the better of closed form and GGEUR": {
        "ggeur.closed_form": "auto",
        "ggeur.init": "closed_form",
        "ggeur.keep": "best",
    },
}


def scores(network: dict, division: tuple, seed: int) -> dict[str, float]:
    """AVG in % of the network and of each head on its features."""
    splitter, arguments = division
    common = {
        "seed": seed,
        "data.splitter": splitter,
        "data.splitter_args": arguments,
    }
    with TemporaryDirectory() as folder:
        overrides = {**common, **network, "ggeur.encoder.cache": folder}
        one = Run(load_config(CONFIGS / "network_quickstart.yaml", overrides))
        trained = one.follow(lambda record: None)
        write_run(Path(folder), trained, one.history.head_bytes())
        found = {"": 100 * trained.final.avg}
        for name, head in HEADS.items():
            overrides = {
                **common,
                **head,
                "ggeur.encoder.model": folder,
                "ggeur.encoder.cache": folder,
            }
            results = run(CONFIGS / "network_then_ggeur.yaml", overrides=overrides)
            found[name] = 100 * results.final.avg
    return found


def rows(seeds: int) -> list[dict[str, object]]:
    table = []
    for division, how in DIVISIONS.items():
        for network, settings in NETWORKS.items():
            by_seed = [scores(settings, how, seed) for seed in range(seeds)]
            for head in by_seed[0]:
                found = [one[head] for one in by_seed]
                gains = [one[head] - one[""] for one in by_seed]
                table.append(
                    {
                        "division": division,
                        "network": network,
                        "head": head or "its own",
                        "AVG %": _with_error(found),
                        "gain": _with_error(gains) if head else "",
                        "by seed": " ".join(f"{score:.1f}" for score in found),
                    }
                )
    return table


def _with_error(values: list[float]) -> str:
    error = standard_error(values)
    return f"{fmean(values):.1f} ({error:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    report(rows(args.seeds), args.csv)


if __name__ == "__main__":
    main()
