"""Carries the messages of distributed mode, with one gRPC stream for each client.

This package handles only bytes. It uses neither FederatedScope nor protobuf, and never
unpickles.
"""

from .frames import JOIN, Envelope
from .hub import BROKEN, Event, Hub
from .link import Link, open_link
from .security import Security, check_token, make_token
from .settings import TransportSettings
from .streams import ALREADY_JOINED, ConnectionLost, HubClosed, Refused, StreamEnded
