"""What the core knows of the engine inside Flower."""

from federatedscope_ggeur.extras import Manifest, commands_in

_COMMANDS = "flower-app FOLDER --cfg FILE: write the app folder for `flwr run`"

MANIFEST = Manifest(
    commands_in(f"{__package__}.command", _COMMANDS, "with Flower"),
    needs=("sites",),
    runs_code={
        "flower": "whoever runs Flower's SuperLink can run code at the sites; what "
        "clients add there, masks or noise, protects only as long as nobody does"
    },
)
