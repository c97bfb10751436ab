"""Makes FederatedScope's (FS's) messages work on new releases of protobuf.

An old protoc generated FS's ``federatedscope/core/proto/gRPC_comm_manager_pb2.py``.
When it is imported, protobuf 4 and later raise "Descriptors cannot be created
directly". The schema in the file is still valid. This module makes the messages from
the file's own ``serialized_pb`` and replaces FS's module. The bytes of messages are the
same.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from federatedscope_ggeur.printable import get_logger

MODULE = "federatedscope.core.proto.gRPC_comm_manager_pb2"
logger = get_logger(__name__)


class _Rebuilt(ModuleType):
    """A module that replaces FS's own."""


@cache
def ensure_messages() -> bool:
    """Make FS's protobuf module importable; a second call does nothing.

    Call this before ``federatedscope.core.message`` is imported. A module of FS that is
    imported already, or that works, is not replaced.

    Returns
    -------
    bool
        Whether the rebuilt messages are in use.

    Raises
    ------
    ImportError
        FederatedScope or protobuf is not installed.
    """
    import federatedscope
    from google.protobuf import __version__ as release

    if MODULE in sys.modules or int(release.split(".")[0]) < 4:
        return isinstance(sys.modules.get(MODULE), _Rebuilt)
    package = Path(federatedscope.__path__[0])
    path = package / "core" / "proto" / "gRPC_comm_manager_pb2.py"
    try:
        sys.modules[MODULE] = _rebuilt_module(path)
    except (OSError, SyntaxError, TypeError, ValueError) as error:
        logger.warning(
            "FederatedScope's protobuf messages were not changed, because '%s' differs "
            "from FederatedScope 0.3.0 (%s); if their import fails: "
            "pip install 'protobuf<3.21'",
            path,
            error,
        )
        return False
    logger.info("FederatedScope's messages are rebuilt for protobuf %s", release)
    return True


def _rebuilt_module(path: Path) -> ModuleType:
    """Make a module with the messages of FS's from the schema in FS's file."""
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        symbol_database,
    )
    from google.protobuf.message import DecodeError

    schemas = [
        node.value.value
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.keyword)
        and node.arg == "serialized_pb"
        and isinstance(node.value, ast.Constant)
    ]
    if len(schemas) != 1:
        raise ValueError(f"it has {len(schemas)} serialized schemas instead of one")
    try:
        name = descriptor_pb2.FileDescriptorProto.FromString(schemas[0]).name
    except DecodeError as error:
        raise ValueError(f"its schema cannot be read: {error}") from error
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(schemas[0])
    module = _Rebuilt(MODULE, f"Rebuilt from the schema in {path}.")
    module.DESCRIPTOR = pool.FindFileByName(name)
    # protobuf before 4.22 has no GetMessageClass.
    get_class = getattr(message_factory, "GetMessageClass", None)
    get_class = get_class or symbol_database.Default().GetPrototype
    for name, message in module.DESCRIPTOR.message_types_by_name.items():
        setattr(module, name, get_class(message))
    return module
