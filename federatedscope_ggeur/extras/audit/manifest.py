"""What the core knows of the audit."""

from federatedscope_ggeur.extras import Manifest, commands_in

_COMMANDS = """
audit --cfg FILE [--level rows|membership|dp]: attack a run's messages, and report what
  they reveal
"""

MANIFEST = Manifest(
    commands_in(f"{__package__}.command", _COMMANDS, "privacy"),
    uses=("differential_privacy", "secure_sums"),
)
