"""What the core knows of federations of real sites."""

from federatedscope_ggeur.extras import Command, Manifest


def _command(does: str, takes: str = "--cfg FILE", module: str = "command") -> Command:
    return Command(f"{__package__}.{module}", takes, does, "real sites")


MANIFEST = Manifest(
    {
        "certificates": _command(
            "make a folder for each site: settings, TLS certificate, token",
            "FILE",
            "site_files",
        ),
        "check": _command("find problems that would keep a site from joining"),
        "serve": _command("lead a federation of real sites"),
        "join": _command("take part in a federation, as one site"),
        "healthy": _command("exit with status 0 if serve or join is running"),
    }
)
