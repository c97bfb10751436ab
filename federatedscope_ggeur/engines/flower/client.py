"""The ClientApp: carries bytes between Flower and the site's resident, nothing else.

It imports no torch, because Flower starts a process for each message.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from federatedscope_ggeur.engines.flower.pipe import exchange
from federatedscope_ggeur.engines.flower.records import (
    content_of,
    problem_of,
    read_content,
)

#: The key of ``--node-config`` that names the resident's socket.
SOCKET = "resident"

app = ClientApp()


@app.query()
def carry(message: Message, context: Context) -> Message:
    """Hand the server's bytes to the resident; returns the resident's answer."""
    path = context.node_config.get(SOCKET)
    if path is None:
        problem = f"its SuperNode has no --node-config '{SOCKET}=\"/path/to/socket\"'"
        return Message(problem_of(problem), reply_to=message)
    try:
        answer = content_of(exchange(str(path), read_content(message.content)))
    except OSError as error:
        answer = problem_of(f"the site's resident does not answer: {error}")
    return Message(answer, reply_to=message)
