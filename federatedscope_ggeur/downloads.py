"""Find published weights on this machine, or download them."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import torch

from federatedscope_ggeur.errors import ConfigError, UntrustedError
from federatedscope_ggeur.printable import get_logger

logger = get_logger(__name__)

_BLOCK = 1 << 20
_REACH = 2.0  # s
_TIMM_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Remote:
    """The places where published weights can be found.

    Parameters
    ----------
    repo : str
        Repository on the Hugging Face hub; "" if none.
    filenames : tuple of str
        The file's possible names in `repo`, the best first.
    url : str
        Address of the file outside the hub; "" if there is none.
    folder : Path
        The folder that keeps a file from `url`.
    sha256 : str
        The first digits of the SHA-256 of the file at `url`; "" if unknown.
    """

    repo: str
    filenames: tuple[str, ...]
    url: str
    folder: Path
    sha256: str = ""

    @property
    def address(self) -> str:
        """The address from which a person can fetch the file by hand."""
        if self.repo:
            return f"{hub()}/{self.repo}/resolve/main/{self.filenames[0]}"
        return self.url


def of_timm(config) -> Remote:
    """The places of the weights that a `PretrainedCfg` of timm describes."""
    names = (config.hf_hub_filename,) if config.hf_hub_filename else _TIMM_FILES
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    return Remote(config.hf_hub_id or "", names, config.url or "", folder)


def hub() -> str:
    """Address of the Hugging Face hub, or of the mirror that ``HF_ENDPOINT`` names."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def is_offline() -> bool:
    """Whether ``HF_HUB_OFFLINE`` forbids downloads."""
    return os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE")


_refused: ContextVar[str] = ContextVar("refused", default="")


@contextmanager
def refused(why: str) -> Iterator[None]:
    """Refuse all downloads inside this block. The error gives `why` as the reason."""
    before = _refused.set(why)
    try:
        yield
    finally:
        _refused.reset(before)


def check_allowed() -> None:
    """Raise `UntrustedError` if downloads are refused."""
    if why := _refused.get():
        raise UntrustedError(f"downloads are not allowed here, because {why}")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def find(remote: Remote) -> Path | None:
    """The weights file on this machine; None if there is none. Uses no network."""
    if remote.repo:
        from huggingface_hub import try_to_load_from_cache

        for name in remote.filenames:
            path = try_to_load_from_cache(remote.repo, name)
            if isinstance(path, str):
                return Path(path)
    if remote.url:
        path = remote.folder / remote.url.rpartition("/")[2]
        if path.is_file():
            if sha256_file(path).startswith(remote.sha256):
                return path
            logger.warning("%s is damaged (SHA-256 differs) and is not used", path)
    return None


def obtain(remote: Remote, what: str, size: Callable[[], int], by_hand: str) -> Path:
    """The path of the weights file. The file is downloaded if this machine lacks it.

    Parameters
    ----------
    remote : Remote
    what : str
        The name of the model, for messages.
    size : callable () -> int
        Returns about how many bytes the weights have.
    by_hand : str
        The settings that take a file fetched by hand, called FILE.

    Raises
    ------
    ConfigError
        The weights cannot be obtained; the message says what to fetch by hand and how
        to use it.
    """
    if (path := find(remote)) is not None:
        return path
    about = f"about {size() / 1e6:,.0f} MB"
    hint = (
        f"On a machine with a network, fetch {remote.address}, copy the file to this "
        f"machine, and set: {by_hand}"
    )
    if why := _refused.get():
        raise UntrustedError(
            f"the weights of {what} ({about}) are not on this machine, and nothing is "
            f"downloaded because {why}. {hint}"
        )
    if is_offline():
        raise ConfigError(
            f"the weights of {what} ({about}) are not on this machine, and "
            f"HF_HUB_OFFLINE forbids downloads. {hint}"
        )
    logger.info("downloading the weights of %s, %s: %s", what, about, remote.address)
    try:
        check_network(remote.address)
        return _download(remote)
    except Exception as error:  # the hub, HTTP and sockets each have their own
        raise ConfigError(
            f"the weights of {what} ({about}) are not on this machine and could not be "
            f"downloaded from {remote.address}: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error) else ''}. {hint}"
        ) from error


def check_network(address: str) -> None:
    """Raise `OSError` if a URL's host, or the proxy before it, cannot be reached.

    The check takes about two seconds. Without it the download libraries would try again
    for a minute.
    """
    host = urlsplit(address).hostname or ""
    proxies = {} if proxy_bypass(host) else getproxies()
    asked = urlsplit(proxies.get("https") or proxies.get("all") or address)
    port = asked.port or (80 if asked.scheme == "http" else 443)
    where = asked.hostname or host, port
    errors: list[Exception] = []

    def connect() -> None:
        try:
            socket.create_connection(where, _REACH).close()
        except OSError as error:
            errors.append(error)

    # Looking up a name without an answer takes longer than any time-out of a socket.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_REACH)
    if thread.is_alive() or errors:
        why = errors[0] if errors else f"no answer within {_REACH:g} s"
        raise OSError(f"{where[0]} cannot be reached ({why})")


def _download(remote: Remote) -> Path:
    if not remote.repo:
        remote.folder.mkdir(parents=True, exist_ok=True)
        path = remote.folder / remote.url.rpartition("/")[2]
        torch.hub.download_url_to_file(remote.url, str(path), remote.sha256 or None)
        return path
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import EntryNotFoundError

    *others, last = remote.filenames
    for name in others:
        try:
            return Path(hf_hub_download(remote.repo, name))
        except EntryNotFoundError as error:
            # This subclass means that there was no network.
            if isinstance(error, FileNotFoundError):
                raise
    return Path(hf_hub_download(remote.repo, last))
