"""What the core knows of the export of a run's head."""

from federatedscope_ggeur.extras import Command, Manifest

MANIFEST = Manifest(
    {
        "export": Command(
            f"{__package__}.command",
            "RUN [--onnx FILE] [--card FILE]",
            "write the head of a run as an ONNX file, and a model card",
        )
    }
)
