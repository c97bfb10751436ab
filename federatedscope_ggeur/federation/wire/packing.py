"""Packs messages as safetensors with a small JSON header. Pickle is never used.

Pickle would run the sender's code in the receiver's process. Safetensors carry only
numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Collection, Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.files import safetensors_header
from federatedscope_ggeur.methods.contexts import own_problem, shape_problem

VERSION = 4

#: More rows, rounds or steps than any run has. Sums of such numbers stay exact.
LARGEST = 2**40

# The names of the types of a method's own tensors in safetensors, in its order.
_NAMES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.uint8: "U8",
}
_RANKS = {dtype: rank for rank, dtype in enumerate(_NAMES)}
#: Bounds of numbers that have none.
ANY = (-math.inf, math.inf)

_ENCODER = json.JSONEncoder(allow_nan=False)
_PLAIN_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def pack(kind: str, numbers: Mapping, tensors: Mapping[str, Tensor]) -> bytes:
    """Pack a message of `kind`, with plain `numbers` (and texts) and `tensors`."""
    text = _text(kind, numbers)
    own = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    if not _is_plain(own):
        # This function refuses tensors that share memory.
        return save_safetensors({name: t.clone() for name, t in own.items()}, text)
    own = _in_order(own)
    words = _words(text, own)
    buffers = [tensor.numpy().data for tensor in own.values()]
    return b"".join([len(words).to_bytes(8, "little"), words, *buffers])


def packed_size(kind: str, numbers: Mapping, tensors: Mapping[str, Tensor]) -> int:
    """The length of the message that `pack` makes. No numbers are copied for it."""
    if not _is_plain(tensors):
        return len(pack(kind, numbers, tensors))
    words = _words(_text(kind, numbers), _in_order(tensors))
    return 8 + len(words) + sum(map(_nbytes, tensors.values()))


def _text(kind: str, numbers: Mapping) -> dict[str, str]:
    header = {"version": VERSION, "kind": kind, "numbers": dict(numbers)}
    return {"ggeur": _ENCODER.encode(header)}


def _is_plain(tensors: Mapping[str, Tensor]) -> bool:
    """Whether `pack` writes the bytes itself, in a third of the time of safetensors."""
    known = all(tensor.dtype in _NAMES for tensor in tensors.values())
    return sys.byteorder == "little" and known


def _in_order(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the order of `safetensors.numpy.save`."""
    return dict(sorted(tensors.items(), key=lambda one: (_RANKS[one[1].dtype], one[0])))


def _words(text: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bytes:
    """The header that `safetensors.numpy.save` writes for tensors in its order."""
    header: dict[str, Any] = {"__metadata__": text}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + _nbytes(tensor)
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": tuple(tensor.shape),
            "data_offsets": (start, end),
        }
    words = _PLAIN_ENCODER.encode(header).encode()
    return words + b" " * (-len(words) % 8)


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def unpack(data: bytes, kind: str, sender: str) -> Message:
    """Read the message in `data`, which must be of `kind` and of this version.

    Raises
    ------
    MessageError
        The data are not safetensors, lack the header, or have another version or kind.
    """
    try:
        tensors = load_safetensors(data)
        metadata = safetensors_header(data).get("__metadata__", {})
        header = json.loads(metadata["ggeur"])
        version, said = header["version"], header["kind"]
        numbers = dict(header["numbers"])
    # RuntimeError: a shape that torch refuses, or a text nested too deeply.
    except (
        SafetensorError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        raise MessageError(
            f"not a message of this program ({type(error).__name__})",
            field="header",
            sender=sender,
        ) from error
    if type(version) is not int or version != VERSION:
        raise MessageError(
            f"version {version!r:.80} instead of {VERSION}: run the same release of "
            "federatedscope_ggeur everywhere",
            field="version",
            sender=sender,
        )
    if said != kind:
        raise MessageError(
            f"{said!r:.80} instead of {kind!r}", field="kind", sender=sender
        )
    return Message(numbers, tensors, sender)


def sealed(numbers: Mapping, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """`numbers` with a checksum of these numbers and of `tensors`.

    `Message.check_content` finds with it that a disk has damaged the file.
    """
    return {**numbers, "checksum": _checksum(numbers, tensors)}


def _checksum(numbers: Mapping, tensors: Mapping[str, Tensor]) -> str:
    """A digest of the numbers, and of tensors with names, types and shapes."""
    text = json.dumps(numbers, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to ``<prefix>.<name>``; see `Message.tensors_under`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def range_problem(tensor: Tensor, within: tuple[float, float]) -> str:
    """A text that says which number of `tensor` is not finite or not `within`; else "".

    `within` has the lowest and the highest number.
    """
    if not tensor.numel() or not (tensor.is_floating_point() or within is not ANY):
        return ""
    low, high = within
    lowest, highest = (end.item() for end in tensor.aminmax())
    if not math.isfinite(lowest) or not math.isfinite(highest):
        return "contains NaN or infinity"
    if low <= lowest and highest <= high:
        return ""
    wrong = highest if low <= lowest <= high else lowest
    return f"must lie in {low:.15g}..{high:.15g}, got {wrong:.6g}"


class Message:
    """A received message. Its fields are checked when they are read.

    Every method raises `MessageError`, with the sender and the field, if the message
    does not hold what is expected.

    Attributes
    ----------
    used : set of str
        The tensors that have been read.
    """

    def __init__(
        self, numbers: dict[str, Any], tensors: dict[str, Tensor], sender: str
    ):
        self._numbers, self._tensors, self._sender = numbers, tensors, sender
        self.used: set[str] = set()

    def refuse(self, field: str, problem: str) -> MessageError:
        return MessageError(problem, field=field, sender=self._sender)

    def integer(self, field: str, minimum: int = 0) -> int:
        value = self._numbers.get(field)
        if type(value) is not int or not minimum <= value <= LARGEST:
            raise self.refuse(
                field, f"expected an integer of at least {minimum}, got {value!r:.80}"
            )
        return value

    def client(self) -> int:
        """The client number in the message.

        A sender known as ``client <number>`` may only give its own number.
        """
        number = self.integer("client", 1)
        known = self._sender.startswith("client ")
        if known and self._sender != f"client {number}":
            raise self.refuse(
                "client", f"expected the sender's own number, got {number}"
            )
        return number

    def number(self, field: str, maximum: float = sys.float_info.max) -> float:
        value: Any = self._numbers.get(field)
        if type(value) not in (int, float) or not 0 <= value <= maximum:
            raise self.refuse(
                field, f"expected a number in 0..{maximum:g}, got {value!r:.80}"
            )
        return float(value)

    def text(self, field: str) -> str:
        value = self._numbers.get(field)
        if not isinstance(value, str):
            raise self.refuse(field, f"expected a text, got {value!r:.80}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self._numbers.get(field)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.refuse(field, f"expected a list of texts, got {value!r:.80}")
        return tuple(value)

    def mapping(self, field: str) -> dict[str, str]:
        value = self._numbers.get(field)
        if not isinstance(value, dict) or not all(
            isinstance(v, str) for v in value.values()
        ):
            raise self.refuse(field, f"expected texts by name, got {value!r:.80}")
        return value

    def tensor(
        self,
        field: str,
        dtype: torch.dtype,
        shape: tuple[int | None, ...],
        within: tuple[float, float] = ANY,
    ) -> Tensor:
        """The finite tensor `field`, of `dtype` and `shape` (None: any length).

        Each of its numbers must lie `within` (lowest, highest).
        """
        self.used.add(field)
        tensor = self._tensors.get(field)
        if tensor is None:
            raise self.refuse(field, f"missing; got {sorted(self._tensors)}")
        if tensor.dtype != dtype:
            raise self.refuse(field, f"expected {dtype}, got {tensor.dtype}")
        problem = shape_problem(tensor, shape) or range_problem(tensor, within)
        if problem:
            raise self.refuse(field, problem)
        return tensor

    def check_content(self) -> None:
        """Refuse content that does not match the checksum of `sealed`."""
        numbers = {name: n for name, n in self._numbers.items() if name != "checksum"}
        if self.text("checksum") != _checksum(numbers, self._tensors):
            raise self.refuse(
                "checksum", "the content is damaged (its checksum does not match)"
            )

    def has(self, field: str) -> bool:
        """Whether the message has the number, text or tensor `field`."""
        return field in self._numbers or field in self._tensors

    def only(self, fields: Collection[str]) -> None:
        """Refuse tensors that are not in `fields`."""
        unknown = self._tensors.keys() - fields
        if unknown:
            raise self.refuse(
                f"{min(unknown):.80}", "a message of this kind has no such tensor"
            )

    def tensors_under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors named ``<prefix>.<name>``, by name; finite, of plain dtypes."""
        start = prefix + "."
        tensors = {}
        for name, tensor in self._tensors.items():
            if name.startswith(start):
                problem = own_problem(tensor)
                if problem:
                    raise self.refuse(name, problem)
                tensors[name[len(start) :]] = self.tensor(
                    name, tensor.dtype, tuple(tensor.shape)
                )
        return tensors

    def labels(self, field: str, num_classes: int, distinct: bool) -> Tensor:
        """The classes in `field`, below `num_classes`; ascending if `distinct`."""
        labels = self.tensor(field, torch.int64, (None,))
        if ((labels < 0) | (labels >= num_classes)).any():
            raise self.refuse(field, f"classes must lie in 0..{num_classes - 1}")
        if distinct and (labels.diff() <= 0).any():
            raise self.refuse(field, "classes must be ascending and distinct")
        return labels
