"""What the core knows of the engine inside FederatedScope."""

from federatedscope_ggeur.extras import Manifest, commands_in

_COMMANDS = """
enable [FOLDER]: let FederatedScope load the plugin
disable [FOLDER]: undo enable; nothing else changes
"""

MANIFEST = Manifest(
    commands_in(f"{__package__}.command", _COMMANDS, "with FederatedScope"),
    needs=("sites",),
    engines={"federatedscope": f"{__package__}.launch"},
    doctor=f"{__package__}.install",
)
