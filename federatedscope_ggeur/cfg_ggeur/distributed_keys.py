"""The `ggeur.*` keys of distributed runs."""

from __future__ import annotations

from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    alike,
    names,
    one_of,
    positive_up_to,
    text,
    whole,
)

DISTRIBUTED_KEYS = (
    *alike(
        NOT_SET,
        whole(1, not_set_allowed=True),
        quorum="The run ends with an error when fewer clients than this are left, "
        "joining included; -1: all must be there.",
        client_number="Distributed, with distribute.data_idx -1: this client's number, "
        "1, 2, ...; otherwise data_idx is the number.",
    ),
    Key(
        "domain",
        "",
        "Distributed, with distribute.data_idx -1: the domain of this client's data.",
        text,
    ),
    *alike(
        600.0,
        positive_up_to(1e9),
        "deadline.",
        join="Distributed: seconds that the server waits for clients to join, and a "
        "client for a server that it cannot reach.",
        round0="Distributed: seconds for the answers to one request of round 0, or of "
        "calibration.",
        train="Distributed: seconds for the local training of a round.",
        evaluate="Distributed: seconds for the clients' evaluation of a round.",
        silence="Distributed, client: seconds without a word of the server, which says "
        "that it is there, after which it gives up.",
    ),
    *alike(
        "",
        text,
        "tls.",
        certificate="Distributed: this process's own certificate chain (PEM file); on "
        "the server it switches TLS on.",
        key="Private key of tls.certificate (PEM file).",
        authority="Distributed: certificates to trust (PEM file); on a client it "
        "switches TLS on, on the server it demands certificates of the clients.",
    ),
    *alike(
        "",
        text,
        join_secret="Distributed, server: file with the secret that join tokens are "
        "made of (`ggeur token`); clients must then have one.",
        join_token="Distributed, client: file with its join token.",
        node_keys="Distributed through Flower: at a site the file with the private "
        "key of its SuperNode; at the server the folder with the public keys of all "
        "sites. If it is set, `ggeur join`, `serve` and `check` use Flower.",
    ),
    Key(
        "share_results",
        False,
        "Distributed, server: send every client the accuracy of each domain at "
        "the end; with one client in a domain it is that client's.",
        one_of(True, False),
    ),
    Key(
        "agreed.class_names",
        [],
        "Names that the classes must have, in the order of their numbers; []: whatever "
        "the data say. A server without data of its own refuses clients that differ.",
        names("class names"),
    ),
    Key(
        "agreed.encoder",
        "",
        "What the embeddings must be made by, as encoder.txt or the log of a run says "
        "it; empty: whatever the data say. Likewise for a server without data.",
        text,
    ),
)
