"""Folders that look like a checkout of FederatedScope."""

from pathlib import Path

FILES = (
    "__init__.py",
    "main.py",
    "register.py",
    "core/configs/config.py",
    "contrib/configs/__init__.py",
)


def write_checkout(folder: Path) -> Path:
    for name in FILES:
        path = folder / "federatedscope" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder
