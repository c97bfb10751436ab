"""What the core knows of the audit."""

from federatedscope_ggeur.extras import Command, Manifest

MANIFEST = Manifest(
    commands={
        "audit": Command(
            f"{__package__}.command",
            "--cfg FILE [--level rows|membership|dp]",
            "attack a run's messages, and report what they reveal",
            "privacy",
        )
    },
    uses=("differential_privacy", "secure_sums"),
)
