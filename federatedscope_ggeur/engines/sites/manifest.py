"""What the core knows of federations of real sites."""

from federatedscope_ggeur.extras import Command, Manifest

_COMMAND = f"{__package__}.command"

MANIFEST = Manifest(
    {
        "certificates": Command(
            f"{__package__}.site_files",
            "FILE",
            "make a folder for each site: settings, TLS certificate, token",
            "real sites",
        ),
        "check": Command(
            _COMMAND,
            "--cfg FILE",
            "find problems that would keep a site from joining",
            "real sites",
        ),
        "serve": Command(
            _COMMAND, "--cfg FILE", "lead a federation of real sites", "real sites"
        ),
        "join": Command(
            _COMMAND,
            "--cfg FILE",
            "take part in a federation, as one site",
            "real sites",
        ),
        "healthy": Command(
            _COMMAND,
            "--cfg FILE",
            "exit with status 0 if serve or join is running",
            "real sites",
        ),
    }
)
