"""The `ggeur.*` keys of distributed runs."""

from __future__ import annotations

from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    alike,
    names,
    not_negative_up_to,
    one_of,
    positive_up_to,
    text,
    whole,
)

DISTRIBUTED_KEYS = (
    *alike(
        NOT_SET,
        whole(1, not_set_allowed=True),
        quorum="The run ends with an error if fewer clients than this join or are "
        "left; -1: all clients are needed.",
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
        join="Distributed: seconds that the server waits for clients to join, and "
        "that a client waits for a server it cannot reach.",
        round0="Distributed: seconds that the server waits for answers to one "
        "request of round 0 or of calibration.",
        train="Distributed: seconds that the server waits for the local training of "
        "a round.",
        evaluate="Distributed: seconds that the server waits for the clients' "
        "evaluation of a round.",
        silence="Distributed, client: after so many seconds without any word from the "
        "server, the client gives up. A waiting server says so from time to time.",
    ),
    Key(
        "deadline.return",
        60.0,
        "Distributed: seconds that the server waits for a client whose connection "
        "broke, before ggeur.quorum decides. Waiting uses them up; ten seconds with a "
        "connection give one back. A client that ends by itself is not waited for.",
        not_negative_up_to(1e9),
    ),
    *alike(
        "",
        text,
        "tls.",
        certificate="Distributed: PEM file with the certificate chain of this process. "
        "On the server it switches TLS on.",
        key="Distributed: PEM file with the private key of tls.certificate.",
        authority="Distributed: PEM file with the certificates to trust. On a client "
        "it switches TLS on. On the server it makes clients show certificates.",
    ),
    *alike(
        "",
        text,
        join_secret="Distributed, server: file with the secret from which `ggeur "
        "token` makes join tokens; every client must then have a token.",
        join_token="Distributed, client: file with the client's join token.",
    ),
    Key(
        "share_results",
        False,
        "Distributed, server: send every client the accuracy of each domain at the "
        "end. If a domain has one client, this is that client's accuracy.",
        one_of(True, False),
    ),
    Key(
        "agreed.class_names",
        [],
        "Names that the classes must have, in the order of their numbers; []: the "
        "names in the data. A server without data refuses clients that differ.",
        names("class names"),
    ),
    Key(
        "agreed.encoder",
        "",
        "The encoder that must have made the embeddings, written as in encoder.txt or "
        "in the log of a run; empty: the encoder in the data. A server without data "
        "refuses clients that differ.",
        text,
    ),
    Key(
        "agreed.release",
        "",
        "The release of this package that `ggeur serve`, `join` and `check` require, "
        "written as `check` shows it. `ggeur certificates` writes it into all files; "
        "empty: any.",
        text,
    ),
)
