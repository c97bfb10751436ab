"""What the core knows of secure sums."""

from federatedscope_ggeur.extras import Manifest
from federatedscope_ggeur.settings import Section, key, one_of, positive, whole

from .limits import MOST_BITS, MOST_CLIENTS, SERVER


class SumKeys(Section):
    """The settings of secure sums."""

    PREFIX = "privacy."

    secure_sums: str = key(
        "none",
        "statistics: clients mask their statistics of round 0, and the masks cancel "
        "in the sum. The server sees only totals, and privacy.min_samples applies to "
        "totals. none: the server sees each client's statistics.",
        one_of("none", "statistics"),
    )
    min_clients: int = key(
        3,
        "Secure sums: the smallest number of clients in a sum.",
        whole(3, maximum=MOST_CLIENTS),
        name="secure_sums_min_clients",
    )
    radius: float = key(
        1.01,
        "Secure sums: the largest length of an embedding. A client with a longer one "
        "refuses to take part. The default suits embeddings of length 1, also in "
        "float16.",
        positive,
        name="secure_sums_radius",
    )
    max_rows: int = key(
        1048576,
        "Secure sums: the largest number of rows of all clients together.",
        whole(1),
        name="secure_sums_max_rows",
    )
    fraction_bits: int = key(
        40,
        "Secure sums: binary places that numbers are rounded to before they are added.",
        whole(8, maximum=MOST_BITS),
        name="secure_sums_fraction_bits",
    )
    trust: str = key(
        SERVER,
        "Secure sums, client: how clients know each other's mask keys. server: they "
        "trust the server, which passes the keys on. Otherwise a file with every "
        "client's verifying key, one line <number> <64 hex digits> each. All sides "
        "must choose the same way.",
        name="secure_sums_trust",
    )
    confirm: bool = key(
        False,
        "Secure sums, distributed, with secure_sums_trust server: before a client "
        "sends anything, its person types words that the person at another client "
        "reads out by telephone. The words differ if the server has exchanged keys.",
        name="secure_sums_confirm",
    )
    signing_key: str = key(
        "",
        "Secure sums, client, with a file in secure_sums_trust: PEM file with the "
        "client's own Ed25519 key. {client} in the path stands for the client's "
        "number.",
        name="secure_sums_signing_key",
    )
    store: str = key(
        "secure_sums",
        "Secure sums, distributed, client: folder that records what the client has "
        "sent, so that it never joins two sums whose difference reveals rows. Keep it "
        "from run to run.",
        name="secure_sums_store",
        in_site_folder=True,
    )
    new_roster: bool = key(
        False,
        "Secure sums, client: allow a second sum over the same rows with other "
        "clients. The difference of the two sums reveals the statistics of the "
        "clients that joined or left. If these are fewer than "
        "secure_sums_min_clients, the client refuses all the same.",
        name="secure_sums_new_roster",
    )


MANIFEST = Manifest(
    keys=SumKeys.declared(),
    parts=(f"{__package__}.exchange",),
    doctor=f"{__package__}.doctor",
    only_totals="secure_sums",
)
