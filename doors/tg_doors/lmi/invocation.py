"""The body of a request -> its text or texts, its parameters, and whether the answer is streamed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tg_doors.lmi.parameters import LmiParameters
from tg_gateway.dialects import list_unknown
from tg_schema import decode
from tg_schema.errors import BadRequest

MAX_INPUTS: Final = 1024
"""Texts of one dynamic batch."""


class PayloadError(BadRequest):
    """The body is no request of LMI's. A wrong parameter raises a plain `BadRequest`."""


class InvocationBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one text, or for each of several."""

    inputs: str | tuple[str, ...]
    parameters: LmiParameters | None = None
    stream: bool | None = None
    model: str | None = None
    """Our addition to the API, since an LMI endpoint has one model. Default: the default flow's model."""
    adapters: str | tuple[str | None, ...] | None = None


class _Given(msgspec.Struct, frozen=True):
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """A request.

    Attributes:
        texts: the texts of `inputs`; at least one of them is not empty.
        listed: whether the texts came as a list.
        parameters: how to generate.
        given: all parameters, unchanged.
        stream: whether the answer is streamed.
        model: by its name; None = the default one.
        adapters: the LoRA adapter for each text; empty = the request names none.
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
        PayloadError: the body is not JSON, or `inputs` or another field is invalid.
        BadRequest: a parameter is wrong.
    """
    body, given = _read_body(data)
    listed = not isinstance(body.inputs, str)
    texts = (body.inputs,) if isinstance(body.inputs, str) else body.inputs
    PayloadError.refuse(
        {
            # If one of several texts is empty, only that text fails; the others are answered.
            "inputs must not be empty, nor all texts in it": not any(texts),
            f"inputs may have at most {MAX_INPUTS} texts; ask several times": len(texts) > MAX_INPUTS,
        }
    )
    unknown = tuple(list_unknown(data, InvocationBody, parameters=LmiParameters))
    adapters = _spread(body.adapters, len(texts))
    parameters = body.parameters or LmiParameters()
    return Invocation(texts, listed, parameters, given, bool(body.stream), body.model, adapters, unknown)


def _read_body(data: bytes) -> tuple[InvocationBody, Mapping[str, Any]]:
    """The body, and its parameters unchanged. A wrong parameter is an error of the generation, not of the body."""
    try:
        return decode(InvocationBody, data), decode(_Given, data).parameters or {}
    except BadRequest as error:
        if "`$.parameters." in error.message:
            raise
        raise PayloadError(error.message) from None


def _spread(adapters: str | tuple[str | None, ...] | None, count: int) -> tuple[str | None, ...]:
    """One adapter for each text; LMI takes a list of that length, or one for all."""
    named = (adapters,) if isinstance(adapters, str) else adapters or ()
    if len(named) not in {0, 1, count}:
        raise PayloadError("adapters must name one adapter, or as many as inputs has texts")
    return tuple(named) * count if len(named) == 1 else tuple(named)
