"""Carries the messages of distributed mode, with one gRPC stream for each client.

This package handles only bytes. It uses neither FederatedScope nor protobuf, and never
unpickles.
"""

from federatedscope_ggeur.transport.endings import (
    ConnectionLost,
    HubClosed,
    Refused,
    StreamEnded,
)
from federatedscope_ggeur.transport.frames import Envelope
from federatedscope_ggeur.transport.hub import ALREADY_JOINED, BROKEN, Event, Hub
from federatedscope_ggeur.transport.link import Link
from federatedscope_ggeur.transport.security import Security, check_token, make_token
from federatedscope_ggeur.transport.settings import TransportSettings
