"""The model of its own that a client of a distributed run leaves."""

from __future__ import annotations

from dataclasses import replace

from federatedscope_ggeur.engines.federation import plain_config
from federatedscope_ggeur.engines.fs.data import ClientSplits
from federatedscope_ggeur.federation import Client
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.models import head_bytes, own_bytes, own_tensors
from federatedscope_ggeur.reporting import CLIENT_FILE, ClientInfo, Results, write_left
from federatedscope_ggeur.reporting.results import Status


def write_own_model(
    cfg, data: ClientSplits, client: Client, scored: Broadcast, status: Status
) -> None:
    """Write the client's own model into its run folder, with the global one, if there
    is one.

    Parameters
    ----------
    cfg : config of FS
    data : ClientSplits
    client : Client
    scored : Broadcast
        The client makes its model from it.
    status : {"finished", "interrupted", "failed"}

    Raises
    ------
    ConfigError
        A file cannot be written.
    """
    held, about = data.held, (data.class_names, data.encoder)
    evaluation = EvaluationClient(client, {})
    head, shared = None, evaluation.shared_model(scored)
    if shared is not None:
        head = head_bytes(shared, *about)
    common = None if shared is None else shared.state_dict()
    params = client.personal
    if params is None:
        params = evaluation.eval_params(scored)
    tensors = own_tensors(client.scored_model, params, common)
    rows = len(held.train), len(held.test), len(held.val)
    begun = Results.begun(
        engine="federatedscope distributed, a client",
        config=plain_config(cfg),
        seed=cfg.seed,
        domains=[held.domain],
        unseen_domains=[],
        class_names=list(data.class_names),
        encoder=data.encoder,
        clients=[ClientInfo(held.number, held.domain, *rows)],
    )
    results = replace(
        begun, status=status, final=replace(begun.final, scored="clients")
    )
    own = own_bytes(tensors, held.number, held.domain, head, *about)
    write_left(cfg.outdir, results, head, [(held.number, own)], CLIENT_FILE)
