"""Attacks on the bytes of a run: what server and clients learn of rows.

An audit that passes is no proof. It says of each attack how far it came.
"""

from federatedscope_ggeur.audit.base import ADVERSARIES, Finding, Transcript, Truth
from federatedscope_ggeur.audit.suite import (
    ATTACKS,
    LEVELS,
    Verdict,
    audit_run,
    self_audit,
)
