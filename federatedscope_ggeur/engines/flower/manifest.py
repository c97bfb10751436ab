"""What the core knows of the engine inside Flower."""

from federatedscope_ggeur.extras import Command, Manifest

MANIFEST = Manifest(
    {
        "flower-app": Command(
            f"{__package__}.command",
            "FOLDER --cfg FILE",
            "write the app folder for `flwr run`",
            "with Flower",
        )
    },
    needs=("sites",),
    runs_code={
        "flower": "whoever runs Flower's SuperLink can run code at the sites; what "
        "clients add there, masks or noise, protects only as long as nobody does"
    },
)
