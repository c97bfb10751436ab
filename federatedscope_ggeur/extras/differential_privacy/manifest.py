"""What the core knows of differential privacy."""

from federatedscope_ggeur.extras import Manifest, commands_in
from federatedscope_ggeur.settings import Key, is_number, one_of, rule_of, text, whole

#: Who adds the noise.
DISTRIBUTED, SERVER, CLIENT = NOISE_BY = ("distributed", "server", "client")
_DP = "privacy.dp"
#: A larger epsilon protects nobody: e^100 is about 10^43.
LARGEST_EPSILON = 100.0


def _epsilon(what: str):
    return rule_of(
        f"must be {what}, or above 0 and at most {LARGEST_EPSILON:g}",
        lambda value: is_number(value) and 0 <= value <= LARGEST_EPSILON,
    )


_KEYS = (
    Key(
        f"{_DP}.epsilon",
        0.0,
        "Differential privacy of the statistics of round 0: epsilon for each row of "
        "each client; 0: no differential privacy.",
        _epsilon("0 (no differential privacy)"),
        prepares_rows=True,
    ),
    Key(
        f"{_DP}.delta",
        1e-5,
        "Differential privacy: delta. Keep it well below one over the number of all "
        "rows.",
        rule_of(
            "must be above 0 and at most 0.01",
            lambda value: is_number(value) and 0 < value <= 0.01,
        ),
    ),
    Key(
        f"{_DP}.noise",
        DISTRIBUTED,
        "Differential privacy: who adds the noise. distributed: each client adds a "
        "share, under the masks of secure sums. client: each client adds all of it. "
        "server: the server adds it, and sees everything without noise.",
        one_of(*NOISE_BY),
    ),
    Key(
        f"{_DP}.tolerated",
        -1.0,
        "With dp.noise distributed: how many clients may collude with the server "
        "while epsilon still holds for all others; -1: a third of all clients.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        f"{_DP}.rows_per_class",
        0.0,
        "Differential privacy: your guess of how many rows a class has over all "
        "clients, from public knowledge only. From 100 on, clients also release the "
        "second moment.",
        whole(0),
    ),
    Key(
        f"{_DP}.project",
        256.0,
        "Differential privacy: a random projection reduces longer embeddings to this "
        "many dimensions; 0: no projection.",
        whole(0),
        prepares_rows=True,
    ),
    Key(
        f"{_DP}.project_seed",
        0.0,
        "Differential privacy: seed of the random projection. It is public.",
        whole(0),
        prepares_rows=True,
    ),
    Key(
        f"{_DP}.prior",
        "",
        "Differential privacy, server: npz file of public embeddings (features, "
        "labels), one or more for each class. The release corrects their class means.",
        text,
    ),
    Key(
        f"{_DP}.ledger",
        "",
        "Differential privacy, client: folder of the ledger, where the client records "
        "the budget spent on each row. Keep it from run to run. Distributed runs need "
        "one.",
        text,
        in_site_folder=True,
    ),
    Key(
        f"{_DP}.epsilon_total",
        0.0,
        "Differential privacy, client: the largest epsilon of a row over all its "
        "releases together, at dp.delta; 0: dp.epsilon, enough for one release.",
        _epsilon("0 (one release)"),
    ),
    Key(
        f"{_DP}.report_scores",
        False,
        "Differential privacy: clients send the server exact scores of the head on "
        "their test rows. Epsilon does not cover these scores.",
        one_of(True, False),
    ),
    Key(
        f"{_DP}.test_seed",
        -1.0,
        "Differential privacy, for tests only: seed of the noise. Seeded noise "
        "protects nothing. -1: the operating system draws the noise.",
        whole(0, not_set_allowed=True),
    ),
)

_COMMANDS = """
privacy-ledger FOLDER: print how much of their rows' privacy clients have spent
"""

MANIFEST = Manifest(
    commands_in(f"{__package__}.privacy_ledger", _COMMANDS, "privacy"),
    _KEYS,
    parts=(f"{__package__}.exchange",),
    beside={"secure_sums": f"{__package__}.shares"},
)
