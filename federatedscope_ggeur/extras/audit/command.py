"""``ggeur audit``: attacks the messages of a run and reports what they reveal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.commands import add_options, config_parser
from federatedscope_ggeur.engines.forecast import rehearsed
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.printable import say
from federatedscope_ggeur.reporting import new_run_folder
from federatedscope_ggeur.reporting.tables import text_table

from .answers import LEVELS, Verdict, audit_run
from .base import ADVERSARIES, AttackResult
from .transcript import recorded, truth_of

PASSED, COULD_NOT, FAILED = 0, 2, 3
_STATUS = {
    "passed": PASSED,
    "nothing to attack": PASSED,
    "undecided": COULD_NOT,
    "FAILED": FAILED,
}
_HEAD = (
    "attack", "observer", "figure", "value", "95%", "chance", "limit", "verdict",
    "note",
)  # fmt: skip
NO_PROOF = "A passed audit is no proof of privacy: other attacks may do better."
_WHO = {"curious": "curious parties, each by itself", "lying": "one lying client"}

_OPTIONS = """
--level: the level of privacy that the run must have (default: rows)
--adversary: whose attacks decide the exit status (default: curious, the only ones that
  secure sums defend against); verdicts on both are printed
--seconds SECONDS: the time limit of each attack in seconds (default: 60)
--out DIR: the folder for audit.json (default: outdir)
"""


def audit(arguments: Sequence[str]) -> int:
    """Attack a run; returns 0 if it passes, 3 if it fails, 2 if nothing was tried."""
    parser = config_parser(
        "audit",
        "Runs round 0 and the first rounds on this machine, which must hold all "
        "rows, and attacks the messages. Exit status 3 means that the run fails the "
        "audit.",
    )
    add_options(
        parser,
        _OPTIONS,
        level={"choices": LEVELS, "default": LEVELS[0]},
        adversary={"choices": ADVERSARIES, "default": ADVERSARIES[0]},
        seconds={"type": float, "default": 60.0},
    )
    options = parser.parse_intermixed_args(arguments)
    if not 0 < options.seconds < math.inf:
        parser.error(f"--seconds: must be above 0, got {options.seconds:g}")
    try:
        cfg = rehearsed(load_config(options.cfg, options.settings))
        if options.level == "dp":
            findings = _canaries(cfg)
        else:
            run = Run(cfg)
            run.engine.workers = 1
            findings = audit_run(recorded(run), truth_of(run), options.seconds)
    except GGEURError as error:
        print(f"error: {error}", file=sys.stderr)
        return COULD_NOT
    verdicts = {who: Verdict.of(findings, options.level, who) for who in ADVERSARIES}
    say(*text_table([_HEAD, *map(_cells, findings)], left=range(len(_HEAD))))
    say(*map(verdict_line, verdicts.values()))
    claimed = " and ".join(privacy_of(cfg).against) or "nobody"
    say(f"this run claims to resist {claimed}", NO_PROOF)
    status = _STATUS[verdicts[options.adversary].outcome]
    path = new_run_folder(options.out or cfg.outdir, "audit") / "audit.json"
    content = {
        "level": options.level,
        "adversary": options.adversary,
        "passed": {PASSED: True, FAILED: False}.get(status),
        "verdicts": {
            who: {"outcome": one.outcome.lower(), **asdict(one)}
            for who, one in verdicts.items()
        },
        "claims": privacy_of(cfg).against,
        "no_proof": NO_PROOF,
        "findings": [asdict(one) for one in findings],
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_atomically(path, text)
    say(path)
    return status


def verdict_line(one: Verdict) -> str:
    """One line with the verdict on one kind of adversary."""
    parts = [
        f"by {', '.join(one.failed)}" if one.failed else "",
        f"tried: {', '.join(one.passed)}" if one.passed and not one.failed else "",
        f"no clear difference from chance: {', '.join(one.open)}" if one.open else "",
        f"not tried: {', '.join(one.untried)}" if one.untried else "",
    ]
    about = "; ".join(filter(None, parts))
    about = f" ({about})" if about else ""
    return f"{_WHO[one.adversary]}, level {one.level}: {one.outcome}{about}"


def _cells(one: AttackResult) -> tuple[str, ...]:
    value = "-" if one.value is None else f"{one.value:.4g}"
    span = "-" if one.low is None else f"{one.low:.3f}..{one.high:.3f}"
    chance = "-" if one.chance is None else f"{one.chance:.3g}"
    limit = "-" if one.limit is None else f"{one.limit:g}"
    verdict = {None: "-", True: "pass", False: "FAIL"}[one.passed]
    level = f"{one.level} " if one.level else ""
    return (
        one.attack,
        one.observer,
        one.figure or "-",
        value,
        span,
        chance,
        limit,
        level + verdict,
        one.note,
    )


def _canaries(cfg) -> list[AttackResult]:
    """Attack the noise mechanism of the run with canaries."""
    if not demands_of(cfg).noisy:
        raise ConfigError(
            "audit --level dp: the run claims no differential privacy; set "
            "ggeur.privacy.dp.epsilon, or take another level"
        )
    from federatedscope_ggeur.extras.differential_privacy.noise import NoiseSettings

    from .canaries import canaries

    run = Run(cfg)
    settings = run.settings.role.of(NoiseSettings)
    return canaries(settings, len(run.held.numbers))
