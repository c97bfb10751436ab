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
        quorum="The fewest clients that the run goes on with, from joining on. With "
        "fewer it ends with an error; -1: all clients.",
        client_number="Distributed, with distribute.data_idx -1: the number of this "
        "client: 1, 2, ... Without it, data_idx is the number.",
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
        join_secret="Distributed, server: file with the secret of the join tokens (see "
        "`ggeur token`). With it, only clients with a token can join.",
        join_token="Distributed, client: file with the client's join token.",
        node_keys="Distributed, through Flower: at a site, the file with the private "
        "key of its SuperNode; at the server, the folder with the public keys of all "
        "sites. If it is set, `ggeur join`, `serve` and `check` use Flower.",
    ),
    Key(
        "share_results",
        False,
        "Distributed, server: at the end, send every client the accuracy of each "
        "domain. Where a domain is one client, this is that client's accuracy.",
        one_of(True, False),
    ),
    Key(
        "agreed.class_names",
        [],
        "Names that the classes must have, in the order of their numbers; []: those "
        "of the data. A server without data refuses clients with other names.",
        names("class names"),
    ),
    Key(
        "agreed.encoder",
        "",
        "Encoder that the embeddings must come from, as written in encoder.txt or in "
        "the log of a run; '': that of the data. A server without data refuses "
        "clients with another.",
        text,
    ),
)
