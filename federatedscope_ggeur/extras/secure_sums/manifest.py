"""What the core knows of secure sums."""

from federatedscope_ggeur.extras import Manifest
from federatedscope_ggeur.settings import Key, one_of, positive, text, whole

from .limits import MOST_BITS, MOST_CLIENTS, SERVER

_NAME = "privacy.secure_sums"
_KEYS = (
    Key(
        _NAME,
        "none",
        "statistics: clients mask their statistics of round 0, and the masks cancel "
        "in the sum. The server sees only totals, and privacy.min_samples applies to "
        "totals. none: the server sees each client's statistics.",
        one_of("none", "statistics"),
    ),
    Key(
        f"{_NAME}_min_clients",
        3.0,
        "Secure sums: the smallest number of clients in a sum.",
        whole(3, maximum=MOST_CLIENTS),
    ),
    Key(
        f"{_NAME}_radius",
        1.01,
        "Secure sums: the largest length of an embedding. A client with a longer one "
        "refuses to take part. The default suits embeddings of length 1, also in "
        "float16.",
        positive,
    ),
    Key(
        f"{_NAME}_max_rows",
        1048576.0,
        "Secure sums: the largest number of rows of all clients together.",
        whole(1),
    ),
    Key(
        f"{_NAME}_fraction_bits",
        40.0,
        "Secure sums: binary places that numbers are rounded to before they are added.",
        whole(8, maximum=MOST_BITS),
    ),
    Key(
        f"{_NAME}_trust",
        SERVER,
        "Secure sums, client: how clients know each other's mask keys. server: they "
        "trust the server, which passes the keys on. Otherwise a file with every "
        "client's verifying key, one line <number> <64 hex digits> each. All sides "
        "must choose the same way.",
        text,
    ),
    Key(
        f"{_NAME}_confirm",
        False,
        "Secure sums, distributed, with secure_sums_trust server: before a client "
        "sends anything, its person types words that the person at another client "
        "reads out by telephone. The words differ if the server has exchanged keys.",
        one_of(True, False),
    ),
    Key(
        f"{_NAME}_signing_key",
        "",
        "Secure sums, client, with a file in secure_sums_trust: PEM file with the "
        "client's own Ed25519 key. {client} in the path stands for the client's "
        "number.",
        text,
    ),
    Key(
        f"{_NAME}_store",
        "secure_sums",
        "Secure sums, distributed, client: folder that records what the client has "
        "sent, so that it never joins two sums whose difference reveals rows. Keep it "
        "from run to run.",
        text,
        in_site_folder=True,
    ),
    Key(
        f"{_NAME}_new_roster",
        False,
        "Secure sums, client: allow a second sum over the same rows with other "
        "clients. The difference of the two sums reveals the statistics of the "
        "clients that joined or left. If these are fewer than "
        "secure_sums_min_clients, the client refuses all the same.",
        one_of(True, False),
    ),
)

MANIFEST = Manifest(
    keys=_KEYS,
    parts=(f"{__package__}.exchange",),
    doctor=f"{__package__}.doctor",
    only_totals="secure_sums",
)
