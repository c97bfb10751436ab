"""What the core knows of the audit."""

from federatedscope_ggeur.extras import Command, Manifest

MANIFEST = Manifest(
    commands={
        "audit": Command(
            "federatedscope_ggeur.extras.audit.command",
            "--cfg FILE [--level rows|membership|dp]",
            "attack a run's messages, and report what they reveal",
            "privacy",
        )
    }
)
