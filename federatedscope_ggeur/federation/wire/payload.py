"""Declares messages: dataclasses whose fields say how they travel and what they allow.

One codec writes, reads and checks them all.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Union

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.settings.section import dataclass_transform

from .packing import ANY, Message, pack, under, unpack

if TYPE_CHECKING:
    from typing_extensions import Self

    from .schema import MessageSchema

#: What a message carries: plain values of its header, and tensors by name.
Content = tuple[dict[str, Any], dict[str, Tensor]]
#: A length: a number; None for any; or the name of an earlier field, for its length, or
#: of a fact of the schema.
Length = Union[int, str, None]


class Form:
    """How one field travels. The functions below, from `client` on, make it.

    Parameters
    ----------
    take : callable (Message, name, schema, values of earlier fields)
        Reads and checks what travels.
    put : callable (Content, name, what travels)
        Adds it to a message.
    name : str
        The name in the message; by default that of the field.
    when : callable (MessageSchema) -> bool, optional
        Whether the field travels in runs with this schema. In others it has its
        default, and is None where it is written.
    optional : bool
        Whether a value that equals the default is left out.
    problem : callable, optional
        Says what is wrong with what travels; "" if nothing is.
    converts : pair of callables, optional
        They make what travels of a value, and a value of what travels.
    """

    def __init__(
        self,
        take: Callable[[Message, str, Any, Mapping[str, Any]], Any],
        put: Callable[[Content, str, Any], None],
        name: str = "",
        when: Callable[[Any], bool] | None = None,
        optional: bool = False,
        problem: Callable[[Any], str] | None = None,
        converts: tuple[Callable, Callable] | None = None,
    ):
        self.take, self.put, self.name = take, put, name
        self.when, self.problem = when, problem
        self.may_lack = optional or when is not None
        self.to: Callable | None = None
        self.of: Callable | None = None
        if converts is not None:
            self.to, self.of = converts

    def bind(self, field: dataclasses.Field) -> Form:
        """Take the name and the default of `field`."""
        self.attribute, self.default = field.name, field.default
        self.name = self.name or field.name
        return self

    def is_left_out(self, value: Any) -> bool:
        """Whether `value` does not travel."""
        if self.when is not None:
            return value is None
        return value is self.default or value == self.default

    def is_awaited(self, message: Message, schema: Any) -> bool:
        """Whether the field must be in the message."""
        if self.when is not None:
            return self.when(schema)
        return message.has(self.name)


def _number(content: Content, name: str, value: Any) -> None:
    content[0][name] = value


def _tensor(content: Content, name: str, value: Tensor) -> None:
    content[1][name] = value


def _group(content: Content, name: str, value: Mapping[str, Tensor]) -> None:
    content[1].update(under(name, value))


def _fields(content: Content, name: str, value: Fields) -> None:
    numbers, tensors = value.write()
    content[0].update(numbers)
    content[1].update(tensors)


def own(take: Callable, put: Callable = _tensor, **options: Any) -> Any:
    """A field with a form of its own, by default a tensor; see `Form`.

    The functions below also take the options of `Form`, and the `default` or the
    `default_factory` of the field. A tensor cannot be `optional`, since it cannot be
    compared with its default; with `when` its default is None.
    """
    given = {k: options.pop(k) for k in ("default", "default_factory") if k in options}
    return dataclasses.field(metadata={"form": Form(take, put, **options)}, **given)


def _plain(read: Callable, *limits: Any, **options: Any) -> Any:
    """A field of the header, which a method of `Message` reads."""

    def take(message, name, *_):
        return read(message, name, *limits)

    return own(take, _number, **options)


def client(**options: Any) -> Any:
    """The number of the client that sends the message, from 1."""
    return own(lambda message, *_: message.client(), _number, **options)


def integer(least: int = 0, **options: Any) -> Any:
    """A whole number from `least` to `LARGEST`."""
    return _plain(Message.integer, least, **options)


def flag(**options: Any) -> Any:
    """True or False, which travels as 1 or 0."""
    return integer(converts=(int, bool), **options)


def number(most: float = sys.float_info.max, **options: Any) -> Any:
    """A number from 0 to `most`."""
    return _plain(Message.number, most, **options)


def text(among: Sequence[str] = (), **options: Any) -> Any:
    """A text; if `among` is given, one of these."""
    if among:
        options["problem"] = lambda value: (
            "" if value in among else f"expected one of {among}, got {value!r:.80}"
        )
    return _plain(Message.text, **options)


def texts(**options: Any) -> Any:
    """A tuple of texts."""
    return _plain(Message.texts, converts=(list, tuple), **options)


def mapping(**options: Any) -> Any:
    """Texts by name."""
    return _plain(Message.mapping, converts=(dict, dict), **options)


def tensor(
    dtype: torch.dtype | Callable[[Any], torch.dtype],
    shape: Sequence[Length] | Callable[[Any, Mapping[str, Any]], Sequence[Length]],
    within: tuple[float, float] = ANY,
    **options: Any,
) -> Any:
    """A tensor whose numbers are finite and lie `within` (lowest, highest).

    Parameters
    ----------
    dtype : torch.dtype, or callable (MessageSchema) -> torch.dtype
    shape : sequence
        Each length is a number; None for any; or the name of an earlier field, whose
        length it is, or of a fact of the schema. A callable (MessageSchema, values of
        earlier fields) may return the lengths.
    """

    def take(message, name, schema, earlier):
        kind = dtype(schema) if callable(dtype) else dtype
        lengths = shape(schema, earlier) if callable(shape) else shape
        wanted = tuple(_length(one, schema, earlier) for one in lengths)
        return message.tensor(name, kind, wanted, within)

    return own(take, **options)


def _length(given: Length, schema: Any, earlier: Mapping[str, Any]) -> int | None:
    if not isinstance(given, str):
        return given
    return len(earlier[given]) if given in earlier else getattr(schema, given)


def labels(distinct: bool | Callable[[Any], bool] = False, **options: Any) -> Any:
    """Numbers of classes, int64; in ascending order if they are `distinct`.

    `distinct` may be a callable (MessageSchema) -> bool.
    """

    def take(message, name, schema, earlier):
        ordered = distinct(schema) if callable(distinct) else distinct
        return message.labels(name, schema.num_classes, ordered)

    return own(take, **options)


def tensors(**options: Any) -> Any:
    """Tensors by name, such as those of a method; they may have any shape."""
    return own(lambda message, name, *_: message.tensors_under(name), _group, **options)


def as_bytes(data: bytes) -> Tensor:
    """Convert bytes to a tensor of type uint8."""
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def of_bytes(values: Tensor) -> bytes:
    """Convert a tensor made by `as_bytes` back to bytes."""
    return values.contiguous().numpy().tobytes()


def octets(length: int | None = None, **options: Any) -> Any:
    """Bytes, as many as `length`; they travel as uint8."""
    return tensor(torch.uint8, (length,), converts=(as_bytes, of_bytes), **options)


#: Converts a tuple of whole numbers to a tensor, and back.
INTEGERS = (
    lambda numbers: torch.tensor(numbers, dtype=torch.int64),
    lambda values: tuple(values.tolist()),
)


def integers(**options: Any) -> Any:
    """A tuple of whole numbers, which travels as int64."""
    return tensor(torch.int64, (None,), converts=INTEGERS, **options)


def nested(kind: type[Fields]) -> Any:
    """The fields of another class, which travel among the others."""

    def take(message, name, schema, earlier):
        return kind.read(message, schema)

    return own(take, _fields)


def refusal(field: str, problem: str) -> MessageError:
    """The error that `Fields.check` raises; the sender is added to it."""
    return MessageError(problem, field=field)


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(
        dataclasses.field, own, client, integer, flag, number, text, texts, mapping,
        tensor, labels, tensors, octets, integers, nested,
    ),
)  # fmt: skip
class Fields:
    """Facts that travel together. A subclass is a frozen dataclass of such fields.

    A subclass whose content needs a form of its own has its own `write` and `read`.
    """

    _forms: ClassVar[tuple[Form, ...]] = ()

    def __init_subclass__(cls):
        dataclasses.dataclass(frozen=True)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        lacking = [one.name for one in fields if "form" not in one.metadata]
        if lacking and cls.write is Fields.write:
            raise TypeError(
                f"{cls.__name__}.{lacking[0]} does not say how it travels; give it a "
                "value such as wire.integer()"
            )
        forms = (one for one in fields if "form" in one.metadata)
        cls._forms = tuple(one.metadata["form"].bind(one) for one in forms)

    def write(self) -> Content:
        """What travels: plain values by name, and tensors by name."""
        content: Content = ({}, {})
        for form in self._forms:
            value = getattr(self, form.attribute)
            if form.may_lack and form.is_left_out(value):
                continue
            form.put(content, form.name, value if form.to is None else form.to(value))
        return content

    @classmethod
    def read(cls, message: Message, schema: Any) -> Self:
        """Read and check what `write` wrote.

        Raises
        ------
        MessageError
            A field lacks or holds what is not allowed.
        """
        values: dict[str, Any] = {}
        for form in cls._forms:
            if form.may_lack and not form.is_awaited(message, schema):
                values[form.attribute] = form.default
                continue
            value = form.take(message, form.name, schema, values)
            problem = form.problem(value) if form.problem else ""
            if problem:
                raise message.refuse(form.name, problem)
            values[form.attribute] = form.of(value) if form.of else value
        made = cls(**values)
        try:
            made.check(schema)
        except MessageError as error:
            raise message.refuse(error.field, error.problem) from error
        return made

    def check(self, schema: Any) -> None:
        """Raise a `refusal` if fields that are valid alone do not go together."""


class Payload(Fields):
    """A message, declared: ``class Answer(wire.Payload, kind="answer")``.

    Each field says by its value how it travels, for example ``wire.client()``,
    ``wire.integer(least=1)`` or ``wire.tensor(torch.float32, ("labels", "dim"))``. The
    bytes hold the kind, plain values in the order of the fields, and tensors. What
    arrives is read in this order. A tensor that no field has is refused.

    Parameters
    ----------
    kind : str
        The name of the message in its header.
    """

    _kind: ClassVar[str]

    def __init_subclass__(cls, kind: str):
        super().__init_subclass__()
        cls._kind = kind

    def to_bytes(self) -> bytes:
        return pack(self._kind, *self.write())

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        schema: MessageSchema | None = None,
        sender: str = "the server",
    ) -> Self:
        """Read the message in `data`, which `sender` has sent.

        Raises
        ------
        MessageError
            It is none of this kind, or a field is not valid.
        """
        message = unpack(data, cls._kind, sender)
        made = cls.read(message, schema)
        message.only(message.used)
        return made
