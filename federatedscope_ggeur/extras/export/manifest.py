"""What the core knows of the export of a run's head."""

from federatedscope_ggeur.extras import Manifest, commands_in

_COMMANDS = """
export RUN [--onnx FILE] [--card FILE]: write the head of a run as an ONNX file, and a
  model card
"""

MANIFEST = Manifest(commands_in(f"{__package__}.command", _COMMANDS))
