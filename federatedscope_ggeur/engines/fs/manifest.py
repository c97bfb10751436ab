"""What the core knows of the engine inside FederatedScope."""

from federatedscope_ggeur.extras import Command, Manifest

_COMMAND = f"{__package__}.command"

MANIFEST = Manifest(
    {
        "enable": Command(
            _COMMAND,
            "[FOLDER]",
            "let FederatedScope load the plugin",
            "with FederatedScope",
        ),
        "disable": Command(
            _COMMAND,
            "[FOLDER]",
            "undo enable; nothing else changes",
            "with FederatedScope",
        ),
    },
    needs=("sites",),
    engines={"federatedscope": f"{__package__}.launch"},
    doctor=f"{__package__}.install",
)
