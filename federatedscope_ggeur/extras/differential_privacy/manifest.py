"""What the core knows of differential privacy."""

from __future__ import annotations

from federatedscope_ggeur.extras import Manifest, commands_in
from federatedscope_ggeur.settings import (
    Section,
    is_number,
    key,
    one_of,
    rule_of,
    whole,
)

#: Who adds the noise.
DISTRIBUTED, SERVER, CLIENT = NOISE_BY = ("distributed", "server", "client")
#: A larger epsilon protects nobody: e^100 is about 10^43.
LARGEST_EPSILON = 100.0


def _epsilon(what: str):
    return rule_of(
        f"must be {what}, or above 0 and at most {LARGEST_EPSILON:g}",
        lambda value: is_number(value) and 0 <= value <= LARGEST_EPSILON,
    )


class NoiseKeys(Section):
    """The settings of differential privacy."""

    PREFIX = "privacy.dp."

    epsilon: float = key(
        0.0,
        "Differential privacy of the statistics of round 0: epsilon for each row of "
        "each client; 0: no differential privacy.",
        _epsilon("0 (no differential privacy)"),
        prepares_rows=True,
    )
    delta: float = key(
        1e-5,
        "Differential privacy: delta. Keep it well below one over the number of all "
        "rows.",
        rule_of(
            "must be above 0 and at most 0.01",
            lambda value: is_number(value) and 0 < value <= 0.01,
        ),
    )
    noise: str = key(
        DISTRIBUTED,
        "Differential privacy: who adds the noise. distributed: each client adds a "
        "share, under the masks of secure sums. client: each client adds all of it. "
        "server: the server adds it, and sees everything without noise.",
        one_of(*NOISE_BY),
    )
    tolerated: int | None = key(
        None,
        "With dp.noise distributed: how many clients may collude with the server "
        "while epsilon still holds for all others; -1: a third of all clients. At "
        "most the number of clients less two.",
        whole(0, not_set_allowed=True),
    )
    rows_per_class: int = key(
        0,
        "Differential privacy: your guess of how many rows a class has over all "
        "clients, from public knowledge only. From 100 on, clients also release the "
        "second moment.",
        whole(0),
    )
    project: int = key(
        256,
        "Differential privacy: a random projection reduces longer embeddings to this "
        "many dimensions; 0: no projection.",
        whole(0),
        prepares_rows=True,
    )
    project_seed: int = key(
        0,
        "Differential privacy: seed of the random projection. It is public.",
        whole(0),
        prepares_rows=True,
    )
    prior: str = key(
        "",
        "Differential privacy, server: npz file of public embeddings (features, "
        "labels), one or more for each class. The release corrects their class means.",
    )
    ledger: str = key(
        "",
        "Differential privacy, client: folder of the ledger, where the client records "
        "the budget spent on each row. Keep it from run to run. Distributed runs need "
        "one.",
        in_site_folder=True,
    )
    epsilon_total: float = key(
        0.0,
        "Differential privacy, client: the largest epsilon of a row over all its "
        "releases together, at dp.delta; 0: dp.epsilon, enough for one release.",
        _epsilon("0 (one release)"),
    )
    report_scores: bool = key(
        False,
        "Differential privacy: clients send the server exact scores of the head on "
        "their test rows. Epsilon does not cover these scores.",
    )
    test_seed: int | None = key(
        None,
        "Differential privacy, for tests only: seed of the noise. Seeded noise "
        "protects nothing. -1: the operating system draws the noise.",
        whole(0, not_set_allowed=True),
    )


_COMMANDS = """
privacy-ledger FOLDER: print how much of their rows' privacy clients have spent
"""

MANIFEST = Manifest(
    commands_in(f"{__package__}.privacy_ledger", _COMMANDS, "privacy"),
    NoiseKeys.declared(),
    parts=(f"{__package__}.exchange",),
    beside={"secure_sums": f"{__package__}.shares"},
)
