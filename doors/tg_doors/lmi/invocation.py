"""The body of a request -> what it asks: one text, or several; its parameters; and whether as a stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tg_doors.lmi.parameters import LmiParameters
from tg_schema import decode
from tg_schema.errors import BadRequest

MAX_INPUTS: Final = 1024
"""Texts of one dynamic batch."""


class PayloadError(BadRequest):
    """The body is no request of LMI's. A wrong parameter raises a plain `BadRequest`."""


class InvocationBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body as it comes; `parameters` are decoded separately, since a wrong one is another kind of error."""

    inputs: str | tuple[str, ...]
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    stream: bool | None = None
    model: str | None = None
    """An addition of ours, since an LMI endpoint has one model. Without it, the default flow's model is asked."""
    adapters: str | tuple[str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """A request.

    Attributes:
        texts: the texts of `inputs`; at least one of them is not empty.
        listed: whether they came as a list.
        parameters: how to generate.
        given: all parameters, as they came.
        stream: whether a stream is asked for.
        model: by its name; None = the default one.
        adapters: the LoRA adapter for each text; empty = none is named.
        unknown: names of unknown fields.
    """

    texts: tuple[str, ...]
    listed: bool
    parameters: LmiParameters
    given: Mapping[str, Any]
    stream: bool
    model: str | None
    adapters: tuple[str | None, ...]
    unknown: tuple[str, ...]


def read_invocation(data: bytes) -> Invocation:
    """Read a body.

    Raises:
        PayloadError: it is no JSON, or `inputs` or another field is not what it must be.
        BadRequest: a parameter is wrong.
    """
    body = _read(InvocationBody, data)
    listed = not isinstance(body.inputs, str)
    texts = (body.inputs,) if isinstance(body.inputs, str) else body.inputs
    # One of several texts that is empty fails by itself, beside the answers to the others.
    if not any(texts):
        raise PayloadError("inputs must not be empty, nor all texts in it")
    if len(texts) > MAX_INPUTS:
        raise PayloadError(f"inputs may have at most {MAX_INPUTS} texts; ask several times")
    raw = bytes(body.parameters)
    # Check this first, since the error of decoding all values would name no field.
    sent = _read(dict[str, msgspec.Raw] | None, raw, "parameters: ")
    parameters = _read_parameters(raw) if sent else LmiParameters()
    given = _read(dict[str, Any], raw, "parameters: ") if sent else {}
    unknown = tuple(_list_unknown(data, given))
    return Invocation(
        texts, listed, parameters, given, bool(body.stream), body.model, _spread(body.adapters, len(texts)), unknown
    )


def _read(kind: Any, data: bytes, place: str = "") -> Any:
    try:
        return decode(kind, data)
    except BadRequest as error:
        raise PayloadError(place + error.message) from None


def _read_parameters(data: bytes) -> LmiParameters:
    try:
        return decode(LmiParameters, data)
    except BadRequest as error:
        # Its place as the client sees it, from the root of the body.
        raise BadRequest(error.message.replace("`$", "`$.parameters")) from None


def _spread(adapters: str | tuple[str | None, ...] | None, count: int) -> tuple[str | None, ...]:
    """One adapter for each text; LMI takes a list of that length, or one for all."""
    named = (adapters,) if isinstance(adapters, str) else adapters or ()
    if len(named) not in {0, 1, count}:
        raise PayloadError("adapters must name one adapter, or as many as inputs has texts")
    return tuple(named) * count if len(named) == 1 else tuple(named)


def _list_unknown(data: bytes, given: Mapping[str, Any]) -> Iterator[str]:
    yield from decode(dict[str, msgspec.Raw], data).keys() - set(InvocationBody.__struct_fields__)
    yield from (f"parameters.{name}" for name in given.keys() - set(LmiParameters.__struct_fields__))
