"""Flower in this process: an app's own objects, and a Grid that calls its ClientApp."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from own_process import PATIENCE

from federatedscope_ggeur.engines.flower.app_folder import write_app


class App:
    """The apps in an app folder, and what ``flwr run`` gives them.

    Attributes
    ----------
    server, client : ServerApp, ClientApp
    config : dict
        The run's config. Paths are seen from `place`.
    """

    def __init__(self, folder: Path, cfg, place: Path):
        write_app(folder, cfg, place)
        names = [f"ggeur_federation{name}" for name in ("", ".settings", *self._APPS)]
        for name in names:
            sys.modules.pop(name, None)
        sys.path.insert(0, str(folder))
        try:
            apps = [importlib.import_module(f"ggeur_federation{n}") for n in self._APPS]
        finally:
            sys.path.remove(str(folder))
        self.server, self.client = (module.app for module in apps)
        self.config = {"settings": "", "folder": str(place)}

    _APPS = (".server", ".client")

    def context(self, run: int, node: int, node_config: Mapping | None = None):
        from flwr.app import Context, RecordDict

        own = dict(node_config or {})
        return Context(run, node, own, RecordDict(), dict(self.config))

    def run(self, nodes: Nodes, run: int = 1) -> BaseException | None:
        """Run the ServerApp in a thread, as simulation does; its error, if any."""
        ended: list[BaseException | None] = []

        def lead() -> None:
            try:
                self.server(nodes, self.context(run, 0))
                ended.append(None)
            except BaseException as error:  # SystemExit, too
                ended.append(error)

        before, thread = os.getcwd(), threading.Thread(target=lead, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        os.chdir(before)
        return ended[0]


class Nodes:
    """Flower's Grid. Each SuperNode's ClientApp answers when it is asked.

    Attributes
    ----------
    configs : dict from node to its ``--node-config``
    spoil : dict from node to callable (message) -> Message or None
        What a node answers in the place of the app; None: the app answers.
    seen : list of (node, message, reply)
    """

    def __init__(self, app: App, configs: Mapping[int, Mapping], run: int = 1):
        self.configs, self.spoil, self.seen = dict(configs), {}, []
        self._app, self._run = app, run
        self._ids, self._replies = count(1), {}

    def get_node_ids(self):
        return list(self.configs)

    def push_messages(self, messages):
        names = []
        for message in messages:
            node = message.metadata.dst_node_id
            name = str(next(self._ids))
            message.metadata.__dict__["_message_id"] = name  # as a SuperLink does
            reply = self.spoil.get(node, lambda message: None)(message)
            if reply is None:
                context = self._app.context(self._run, node, self.configs[node])
                reply = self._app.client(message, context)
            self.seen.append((node, message, reply))
            self._replies[name] = reply
            names.append(name)
        return names

    def pull_messages(self, names):
        return [self._replies.pop(name) for name in names if name in self._replies]
