"""Attacks on the bytes of a run: what server and clients can learn about rows.

An audit that passes is no proof. For each attack it says how much the attack found.
"""

from federatedscope_ggeur.audit.base import ADVERSARIES, Finding, Transcript, Truth
from federatedscope_ggeur.audit.suite import (
    ATTACKS,
    LEVELS,
    Verdict,
    audit_run,
    self_audit,
)
