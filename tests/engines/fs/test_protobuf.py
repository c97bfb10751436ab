"""FederatedScope's messages on any protobuf, each case in a process of its own."""

import json
from pathlib import Path

import pytest
from own_process import python

protobuf = pytest.importorskip("google.protobuf")

BACKEND = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
REBUILDS = int(protobuf.__version__.split(".")[0]) >= 4
needs_rebuild = pytest.mark.skipif(
    not REBUILDS, reason="this protobuf needs no rebuilt messages"
)

#: FS's own module under protobuf 3.20.3 (pure Python) made these bytes, with the
#: Message of MESSAGE below: `transform().SerializeToString(deterministic=True).hex()`.
GOLDEN = (
    "0a780a07636f6e74656e74126d1a6b0a100a05666c6f617412070a050d000020400a140a03696e74"
    "120d0a0b10f9ffffffffffffffff010a1b0a046c697374121312110a040a0210010a0912070a050a"
    "031a01780a140a036d6170120d220b0a09080312050a031a01790a0e0a047465787412060a041a02"
    "c3a40a140a086d73675f7479706512080a061a046b696e640a1a0a087265636569766572120e120c"
    "0a040a0210020a040a0210030a0e0a0673656e64657212040a0210010a0d0a05737461746512040a"
    "0210040a140a0974696d657374616d7012070a050d0000a040"
)
MESSAGE = """\
import json, sys
from federatedscope_ggeur.engines.fs.protobuf import MODULE, ensure_messages
in_force = ensure_messages()
first = sys.modules.get(MODULE)
from federatedscope.core.message import Message, gRPC_comm_manager_pb2 as used
from federatedscope.core.proto import gRPC_comm_manager_pb2 as imported
again = ensure_messages()
content = {
    "float": 2.5, "int": -7, "text": "\\u00e4", "list": [1, ["x"]], "map": {3: "y"}
}
sent = Message("kind", 1, [2, 3], 4, content, 5.0)
raw = sent.transform().SerializeToString(deterministic=True)
got = Message()
got.parse(used.MessageRequest.FromString(raw).msg)
fields = ("msg_type", "sender", "receiver", "state", "content", "timestamp")
print(json.dumps({
    "in_force": [in_force, again],
    "one module": imported is used and first in (None, used),
    "raw": raw.hex(),
    "round trip": all(getattr(got, f) == getattr(sent, f) for f in fields),
    "public": sorted(name for name in vars(used) if not name.startswith("_")),
}))
"""


@pytest.mark.parametrize("backend", ["", "python"])
def test_messages_are_those_of_the_module_that_federatedscope_generated(
    federatedscope, backend, monkeypatch
):
    monkeypatch.delenv(BACKEND, raising=False)
    if backend:
        monkeypatch.setenv(BACKEND, backend)
    home = Path(federatedscope.__file__).parents[3]
    done = python("-c", MESSAGE, path=str(home))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "in_force": [REBUILDS, REBUILDS],
        "one module": True,
        "raw": GOLDEN,
        "round trip": True,
        "public": [
            "DESCRIPTOR", "MessageRequest", "MessageResponse", "MsgValue",
            "mDict_keyIsInt", "mDict_keyIsString", "mList", "mSingle",
        ],
    }  # fmt: skip


ENSURE = """\
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
from federatedscope_ggeur.engines.fs.protobuf import MODULE, ensure_messages
print(ensure_messages(), ensure_messages(), MODULE in sys.modules)
"""


def schema() -> bytes:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="own.proto", syntax="proto3")
    message = file.message_type.add(name="Note")
    message.field.add(name="text", number=1, type=9, label=1)
    return file.SerializeToString()


@pytest.fixture
def package(tmp_path):
    """Writes a package ``federatedscope`` with a generated module of old style."""

    def write(text: str) -> Path:
        proto = tmp_path / "federatedscope" / "core" / "proto"
        proto.mkdir(parents=True)
        for folder in (proto, proto.parent, proto.parent.parent):
            (folder / "__init__.py").touch()
        (proto / "gRPC_comm_manager_pb2.py").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@needs_rebuild
def test_rebuilt_messages_are_announced_once(package):
    home = package(f"DESCRIPTOR = F(serialized_pb={schema()!r})\nNote = C(DESCRIPTOR)")
    shows = "print(sys.modules[MODULE].Note(text='x').text)"
    done = python("-c", ENSURE + shows, path=str(home))
    assert done.stdout.split() == ["True", "True", "True", "x"]
    line = "federatedscope_ggeur.engines.fs.protobuf INFO FederatedScope's messages are"
    assert done.stderr.count(line) == 1


@needs_rebuild
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(", "was never closed|unexpected EOF"),
        ("DESCRIPTOR = F(serialized_pb=b'\\xff\\xff')", "schema cannot be read"),
    ],
)
def test_an_unknown_module_is_left_alone_with_a_warning(package, text, reason):
    done = python("-c", ENSURE, path=str(package(text)))
    assert done.stdout.split() == ["False", "False", "False"]
    assert done.stderr.count("WARNING") == 1
    assert any(part in done.stderr for part in reason.split("|")), done.stderr
