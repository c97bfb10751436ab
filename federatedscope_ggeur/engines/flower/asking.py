"""Checks whether a site of a Flower federation can join. It takes no place."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from federatedscope_ggeur.engines.flower.programs import program
from federatedscope_ggeur.engines.site_check import Finding, token_finding, way_findings
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.transport.certificates import read_node_key

_KEY = "ggeur.node_keys"


def install_finding() -> Finding:
    """Check whether Flower is installed."""
    try:
        program("flower-supernode")
        return Finding("Flower", f"flwr {version('flwr')}")
    except ConfigError as error:
        return Finding("Flower", str(error), True)


def superlink_findings(cfg) -> Iterator[Finding]:
    """Check whether the SuperLink can be reached and knows this site's key.

    The check sends only the public key and a signed time. A SuperLink knows neither the
    server's release nor what the federation has agreed on: the server compares these
    when the site joins.
    """
    security, number = transport_settings(cfg).security, int(cfg.ggeur.client_number)
    key = None
    try:
        key = read_node_key(cfg.ggeur.node_keys)
        yield Finding("node key", f"'{cfg.ggeur.node_keys}', for its owner alone")
    except ConfigError as error:
        yield Finding("node key", f"{_KEY}: {error}", True)
    yield (token := token_finding(security, number))
    if not security.authority:
        said = "a SuperNode with a key needs TLS: set ggeur.tls.authority"
        yield Finding("TLS", said, True)
        return
    address = f"{cfg.distribute.server_host}:{cfg.distribute.server_port}"
    way = list(way_findings(address, security))
    yield from way
    if key is not None and not token.problem and not way[-1].problem:
        yield _accepted(address, Path(security.authority).read_bytes(), key)


def _accepted(address: str, authority: bytes, key) -> Finding:
    """Check whether the SuperLink knows the key.

    The check asks it to activate the SuperNode with a heartbeat every 0 s. A SuperLink
    always refuses that, so the site takes no place. It looks for the key first, so the
    kind of refusal shows whether it knows the key.
    """
    import httpx
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    public = key.public_key()
    signing = [NodeAuthHttpInterceptor(key, public)]
    asked = ActivateNodeRequest(
        public_key=public_key_to_bytes(public), heartbeat_interval=0.0
    )
    try:
        with FleetHttpClient.from_server_address(
            address, False, authority, signing
        ) as client:
            client.ActivateNode(asked)
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        code = said and said.code
        if code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
            return Finding("key", "the SuperLink knows it")
        if code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            said = f"the SuperLink does not know this site's key ({_KEY})"
            more = "ask the person who leads the federation to add its public half"
            return Finding("key", f"{said}: {more}", True)
        status = error.response.status_code
        clock = "; is this machine's clock right?" if status == 401 else ""
        return Finding(
            "key", f"the SuperLink answers with HTTP status {status}{clock}", True
        )
    except httpx.HTTPError as error:
        return Finding("key", f"the SuperLink does not answer: {error}", True)
    return Finding(
        "key", "the SuperLink answers as no tested release of Flower does", True
    )
