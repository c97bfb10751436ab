"""``ggeur check``: finds problems that would keep a site from joining."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from federatedscope_ggeur.commands.join import role_parser
from federatedscope_ggeur.printable import say


def check(arguments: Sequence[str]) -> int:
    """Print a line for each check; returns 1 if the site could not join."""
    options = role_parser(
        "check", "No data leave this machine, and the site does not join."
    ).parse_args(arguments)
    good = True
    for finding in _findings(options.cfg):
        mark = "PROBLEM" if finding.problem else "ok     "
        say(f"{mark} {finding.what}: {' '.join(finding.said.split())}")
        sys.stdout.flush()
        good &= not finding.problem
    say("ready to join: ggeur join --cfg FILE" if good else "not ready to join")
    return 0 if good else 1


def _findings(path: str) -> Iterator:
    # Imported here: torch takes seconds, and --help needs none of it.
    from federatedscope_ggeur.commands.console import shown_on_console
    from federatedscope_ggeur.engines.facts import release_text
    from federatedscope_ggeur.engines.roles import names_server, role_config
    from federatedscope_ggeur.engines.site_check import Finding, SiteCheck
    from federatedscope_ggeur.engines.sites import asking
    from federatedscope_ggeur.errors import ConfigError

    yield Finding("program", release_text())
    try:
        asks = names_server(path)
        if asks:
            yield asking.install_finding()
        cfg = role_config(path, "client")
    except ConfigError as error:
        yield Finding("settings", str(error), True)
        return
    yield Finding("settings", f"of client {int(cfg.ggeur.client_number)}")
    site = SiteCheck(cfg)
    with shown_on_console("warning"):
        yield from site.findings()
    if asks:
        yield from asking.server_findings(cfg, site.handshake)
    else:
        said = "not asked, because the file has no distribute.server_host"
        yield Finding("server", said)
