"""Passes blocks of bytes between a ClientApp and its resident, over a Unix socket."""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO

_SIZE = struct.Struct(">Q")


def write_block(file: BinaryIO, data: bytes) -> None:
    """Write one block."""
    file.write(_SIZE.pack(len(data)))
    file.write(data)
    file.flush()


def read_block(file: BinaryIO, most: int) -> bytes:
    """Read one block of at most `most` bytes.

    Raises
    ------
    ConnectionError
        The block is longer, or the connection ended within the block.
    """
    head = file.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise ConnectionError("the connection ended before a message")
    (size,) = _SIZE.unpack(head)
    if size > most:
        raise ConnectionError(f"a message of {size} bytes exceeds the limit of {most}")
    data = file.read(size)
    if len(data) < size:
        raise ConnectionError("the connection ended within a message")
    return data


def exchange(path: str, data: bytes, most: int = 2**40) -> bytes:
    """Hand `data` to the resident that listens at `path`; returns its answer.

    Raises
    ------
    OSError
        No resident listens there, or it ended before it answered.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rwb") as file:
            write_block(file, data)
            return read_block(file, most)
