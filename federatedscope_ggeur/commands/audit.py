"""``federatedscope-ggeur audit``: what attacks learn of the bytes of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from federatedscope_ggeur.audit import LEVELS, Finding, audit_run, fails, self_audit
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.secure_sums import sums_on
from federatedscope_ggeur.commands import config_parser
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.engines.transcript import recorded, truth_of
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import say
from federatedscope_ggeur.reporting import new_run_folder

PASSED, COULD_NOT, FAILED = 0, 2, 3
NO_PROOF = "An audit that passes is no proof: other attacks may do better."


def audit(arguments: Sequence[str]) -> int:
    """Attack a run; 0 if it passes, 3 if it fails, 2 if it could not be run."""
    parser = config_parser(
        "audit",
        "Carries out round 0 and one round on this machine, which must hold all rows, "
        "and attacks what was sent. Exit status 3: it fails.",
    )
    parser.add_argument(
        "--level", choices=LEVELS, default=LEVELS[0], help="what must hold (rows)"
    )
    parser.add_argument(
        "--self",
        type=int,
        metavar="N",
        dest="own",
        help="only what client N is about to send, with its own rows",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for each attack (60)"
    )
    parser.add_argument("--out", metavar="DIR", help="where audit.json goes (outdir)")
    options = parser.parse_intermixed_args(arguments)
    try:
        cfg = _quiet(load_config(options.cfg, options.settings))
        if options.own is None:
            run = Run(cfg)
            found = audit_run(recorded(run), truth_of(run), options.seconds)
        else:
            found = _own(cfg, options.own, options.seconds)
    except GGEURError as error:
        print(f"error: {error}", file=sys.stderr)
        return COULD_NOT
    failed = fails(found, options.level)
    say(*table(found))
    verdict = "FAILED" if failed else "passed"
    names = f" ({', '.join(one.attack for one in failed)})" if failed else ""
    say(f"level {options.level}: {verdict}{names}", NO_PROOF)
    path = new_run_folder(options.out or cfg.outdir, "audit") / "audit.json"
    write_atomically(path, _json(options.level, found, not failed))
    say(path)
    return FAILED if failed else PASSED


def table(found: Sequence[Finding]) -> list[str]:
    """The findings, a line each."""
    head = ("attack", "observer", "figure", "value", "95%", "limit", "verdict", "note")
    rows = [head, *map(_cells, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0])).rstrip()
        for row in rows
    ]


def _cells(one: Finding) -> tuple[str, ...]:
    value = "-" if one.value is None else f"{one.value:.4g}"
    span = "-" if one.low is None else f"{one.low:.3f}..{one.high:.3f}"
    limit = "-" if one.limit is None else f"{one.limit:g}"
    verdict = {None: "-", True: "pass", False: "FAIL"}[one.passed]
    level = f"{one.level} " if one.level else ""
    return (
        *(one.attack, one.observer, one.figure or "-", value, span, limit),
        *(level + verdict, one.note),
    )


def _own(cfg, number: int, seconds: float) -> list[Finding]:
    """What client `number` sends, by a run of it alone."""
    data = load_federated_data(cfg)
    mine = [client for client in data.clients if client.number == number]
    if not mine:
        numbers = [client.number for client in data.clients]
        raise ConfigError(f"audit --self: client {number} is not among {numbers}")
    if sums_on(cfg.ggeur):
        raise ConfigError(
            "audit --self: with ggeur.privacy.secure_sums nothing of a single client "
            "goes up in round 0; audit the run (without --self) for the rounds"
        )
    run = Run(cfg, replace(data, clients=mine, unseen=[]))
    return self_audit(recorded(run), truth_of(run), number, seconds)


def _quiet(cfg):
    """The same without files of its own."""
    cfg = cfg.clone()
    cfg.defrost()
    cfg.federate.save_to = cfg.federate.restore_from = ""
    cfg.freeze()
    return cfg


def _json(level: str, found: Sequence[Finding], passed: bool) -> str:
    content = {
        "level": level,
        "passed": passed,
        "no_proof": NO_PROOF,
        "findings": [asdict(one) for one in found],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
