"""What the core knows of federations of real sites."""

from federatedscope_ggeur.extras import Manifest, commands_in

_FILES = """
certificates FILE: make a folder for each site: settings, TLS certificate, token
"""
_COMMANDS = """
check --cfg FILE: find problems that would keep a site from joining
serve --cfg FILE: lead a federation of real sites
join --cfg FILE: take part in a federation, as one site
healthy --cfg FILE: exit with status 0 if serve or join is running
"""

MANIFEST = Manifest(
    {
        **commands_in(f"{__package__}.site_files", _FILES, "real sites"),
        **commands_in(f"{__package__}.command", _COMMANDS, "real sites"),
    }
)
