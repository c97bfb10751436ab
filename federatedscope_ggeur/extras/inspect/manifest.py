"""What the core knows of pictures before a run."""

from federatedscope_ggeur.extras import Command, Manifest

MANIFEST = Manifest(
    {
        "inspect": Command(
            f"{__package__}.command",
            "--cfg FILE",
            "draw each client's rows, and how similar domains' shapes are",
            "before a run",
        )
    }
)
