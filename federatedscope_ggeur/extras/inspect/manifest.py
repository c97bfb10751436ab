"""What the core knows of pictures before a run."""

from federatedscope_ggeur.extras import Manifest, commands_in

_COMMANDS = """
inspect --cfg FILE: draw each client's rows, and how similar domains' shapes are
"""

MANIFEST = Manifest(commands_in(f"{__package__}.command", _COMMANDS, "before a run"))
