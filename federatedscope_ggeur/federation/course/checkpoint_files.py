"""The file names of checkpoints, and the errors that these files can cause."""

from __future__ import annotations

from pathlib import Path

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.reporting.run_files import OF_CLIENTS, PRIVATE, ROUND0

logger = get_logger(__name__)

#: A checkpoint's place in a run's folder, where ``federate.save_to`` names no file.
DEFAULT_NAME = f"{PRIVATE}/checkpoint"


def warn_of_private(folder: Path) -> None:
    """Log what of a run's folder is not to be passed on."""
    if (folder / PRIVATE).is_dir():
        logger.info(
            "do not pass on %s/, which holds statistics of single clients, nor log.txt",
            PRIVATE,
        )


def make_folder_of(path: Path) -> None:
    """Make the folder of a checkpoint; raises `OSError`."""
    is_private = path.parent.name == PRIVATE
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700 if is_private else 0o777, exist_ok=True)


def round0_path(path: Path) -> Path:
    """The path of the file of round 0, beside the checkpoint at `path`."""
    return path.with_name(path.name + ROUND0)


def client_path(path: str | Path, number: int) -> Path:
    """The path of the file of a client's own state, beside the checkpoint at `path`."""
    return Path(f"{path}{OF_CLIENTS}") / f"client_{number:04d}.safetensors"


def check_name(path: Path) -> None:
    """Refuse a path that is a folder or cannot be a file name.

    Raises
    ------
    ConfigError
    """
    try:
        is_folder = path.is_dir()
        # the longest name that will be needed
        round0_path(path).with_name(f"{path.name}.round0.new").exists()
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise unwritable(
            f"'{path}' cannot be used as a file name: {problem}"
        ) from error
    for place in (path, round0_path(path), client_path(path, 0).parent):
        if place.is_symlink():
            problem = f"'{place}' is a link; name a file that is none"
            raise ConfigError(f"{setting('save_to')}: {problem}")
    if is_folder:
        example = path / "checkpoint"
        problem = f"'{path}' is a folder; name a file, such as '{example}'"
        raise ConfigError(f"{setting('save_to')}: {problem}")


def unwritable(problem: object) -> ConfigError:
    """An error that says that a checkpoint cannot be written."""
    where = setting("save_to")
    return ConfigError(f"{where}: {problem}; free disk space, or name another file")


def taken(path: Path, what: str) -> ConfigError:
    """An error that says that `path` is a file of another run."""
    return ConfigError(
        f"{setting('save_to')}: '{path}' is {what}, and a run never overwrites it. "
        f"Name another file, or set {setting('restore_from')} to continue that run"
    )


def refusal(path: str | Path, problem: str) -> ConfigError:
    """An error that says that a run cannot continue from the file `path`."""
    return ConfigError(f"{setting('restore_from')}: '{path}' cannot be used: {problem}")
