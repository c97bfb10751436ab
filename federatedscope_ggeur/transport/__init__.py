"""Carries the messages of distributed mode: one gRPC stream for each client.

This room knows bytes only: no FederatedScope and no protobuf. It never unpickles.
"""

from federatedscope_ggeur.transport.endings import (
    ConnectionLost,
    HubClosed,
    Refused,
    StreamEnded,
)
from federatedscope_ggeur.transport.frames import Envelope
from federatedscope_ggeur.transport.hub import ALREADY_JOINED, Event, Hub
from federatedscope_ggeur.transport.link import Link
from federatedscope_ggeur.transport.security import Security, check_token, make_token
from federatedscope_ggeur.transport.settings import TransportSettings
