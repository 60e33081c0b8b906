"""Our own JSON <-> records: field names with underscores, keys that are null left out.

TrustGraph's clients read these shapes: `end_of_stream` is always present, and text is never null.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Writer, server_sent_event, text_frame
from tg_gateway.dialects.native import envelope
from tg_gateway.dialects.native.failures import encode_agent_failure, encode_failure
from tg_gateway.dialects.native.request_bodies import parse_agent, parse_completion, parse_fields, parse_prompt
from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentResponse,
    PromptResponse,
    ServiceSpec,
    TextCompletionResponse,
    TgError,
    encode,
)
from tg_schema.response import Response

R = TypeVar("R", bound=msgspec.Struct)

_NEVER_SHOWN: Final = "error"
"""A record with an error is no event: errors have a shape of their own."""


def event_encoder(
    record: type[R],
    always: Mapping[str, object],
    also: Mapping[str, str] = {},
    order: tuple[str, ...] = (),
) -> Callable[[R], bytes]:
    """A function that makes the JSON of a record's event.

    Args:
        record: its fields are the event's, in their order, but for `error`.
        always: the fields that every event has, with the value that replaces null.
        also: fields that an event repeats under a second name, and that name.
        order: fields that come first, in this order; the others follow in the record's.
    """
    known = {field.name: field for field in msgspec.structs.fields(record) if field.name != _NEVER_SHOWN}
    fields = [known[name] for name in dict.fromkeys((*order, *known))]
    shown = [(name, field) for field in fields for name in (field.name, also.get(field.name)) if name]
    event = msgspec.defstruct(
        f"{record.__name__}Event",
        # No field has the value UNSET, so a field with that default is never left out.
        [(name, Any, msgspec.UNSET if field.name in always else field.default) for name, field in shown],
        frozen=True,
        omit_defaults=True,
        gc=False,
    )

    def fill(record: R) -> R:
        missing = {name: value for name, value in always.items() if getattr(record, name) is None}
        return msgspec.structs.replace(record, **missing)

    values = ", ".join(f"record.{field.name}" for _, field in shown)
    is_whole = " and ".join(f"record.{name} is not None" for name in always)
    source = f"lambda record: encode(event({values})) if {is_whole} else again(fill(record))"
    # Written out like this it takes 0.2 us; attrgetter, which the interpreter does not specialise, takes twice that.
    names: dict[str, Any] = {"encode": encode, "event": event, "fill": fill}
    names["again"] = eval(source, names)  # noqa: S307 - made of the names of our own fields alone
    return cast("Callable[[R], bytes]", names["again"])


@dataclass(frozen=True, slots=True)
class NativeService:
    """How one service's requests are parsed and its answers encoded, by pure functions.

    Attributes:
        spec: the service.
        parse: parses a body into the request; raises BadRequest, whose message says what is wrong.
        event: the JSON of one record of a stream, or of the whole answer as a single record.
        failure: the JSON of a stream's last event, when it failed after its first byte.
        parts: the JSON of a whole answer that has several records; None = only the last record is the answer: an
            agent's thoughts are no part of it.
    """

    spec: ServiceSpec[Any, Any]
    parse: Callable[[bytes], Any]
    event: Callable[[Any], bytes]
    failure: Callable[[TgError], bytes] = encode_failure
    parts: Callable[[Sequence[Any]], bytes] | None = None

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return service_of, (self.spec,)

    def whole(self, records: Sequence[Any]) -> bytes:
        """The JSON of a whole answer, of which `records` are all."""
        return self.event(records[-1]) if self.parts is None or len(records) == 1 else self.parts(records)


_COMPLETION_ORDER = ("response", "in_token", "out_token", "model", "end_of_stream", "finish_reason", "reasoning")
_encode_completion = event_encoder(
    TextCompletionResponse,
    {"response": "", "end_of_stream": False},
    order=(*_COMPLETION_ORDER, "tokens", "tool_calls", "cached_token", "reasoning_token"),
)


def _encode_parts(records: Sequence[TextCompletionResponse]) -> bytes:
    """The first answer, and the usage of all. `parts` has all answers, as a stream would have sent them."""
    summary = _encode_completion(TextCompletionResponse.summarize(records))
    parts = map(_encode_completion, TextCompletionResponse.arrange(records))
    return b'%b,"parts":[%b]}' % (summary[:-1], b",".join(parts))


_encode_prompt = event_encoder(PromptResponse, {"end_of_stream": False})
_encode_agent = event_encoder(
    AgentResponse,
    {"chunk_type": "answer", "content": "", "end_of_message": False, "end_of_dialog": False},
    also={"chunk_type": "message_type"},  # TrustGraph's name for the same field
)


def _encode_prompt_event(record: PromptResponse) -> bytes:
    """A text or an object; one of them is always there."""
    if record.text is None and record.object is None:
        record = msgspec.structs.replace(record, text="")
    return _encode_prompt(record)


SERVICES: Final[Mapping[str, NativeService]] = {
    TEXT_COMPLETION.name: NativeService(TEXT_COMPLETION, parse_completion, _encode_completion, parts=_encode_parts),
    PROMPT.name: NativeService(PROMPT, parse_prompt, _encode_prompt_event),
    AGENT.name: NativeService(AGENT, parse_agent, _encode_agent, encode_agent_failure),
}
"""Name of a service -> how it is parsed and encoded."""


@cache
def service_of(spec: ServiceSpec[Any, Any]) -> NativeService:
    """How a service is asked and answered: by its row or, without one, by the fields of its records."""
    return SERVICES.get(spec.name) or _make_service(spec)


def _make_service(spec: ServiceSpec[Any, Any]) -> NativeService:
    """A service that answers with all fields of its records except null ones, and `end_of_stream` last."""
    shown = tuple(name for name in spec.response.__struct_fields__ if name not in {"error", "end_of_stream"})

    def event(record: Any) -> bytes:
        fields = {name: value for name in shown if (value := getattr(record, name)) is not None}
        return encode(fields | {"end_of_stream": record.last})

    return NativeService(spec, partial(parse_fields, spec), event)


class EventWriter(Writer[Any]):
    """Server-sent events without names."""

    def __init__(self, service: NativeService) -> None:
        self._service = service
        self.form = service.spec.name if service.spec.name in SERVICES else None
        self.record_type = service.spec.response

    @override
    def write(self, record: Response) -> bytes:
        return b"data: %b\n\n" % self._service.event(record)

    @override
    def fail(self, error: TgError) -> bytes:
        return server_sent_event(self._service.failure(error))


class MessageWriter(Writer[Any]):
    """WebSocket messages, each event in an envelope."""

    keep_alive = b""

    def __init__(self, service: NativeService, name: envelope.Id) -> None:
        self.form = service.spec.name if service.spec.name in SERVICES else None
        self.record_type = service.spec.response
        self._event = service.event
        self._opened = envelope.opening(name)

    @override
    def write(self, record: Response) -> bytes:
        return text_frame(envelope.response(self._opened, self._event(record), last=record.last))

    @override
    def fail(self, error: TgError) -> bytes:
        return text_frame(envelope.failure(self._opened, error, error.type))


class AttachedWriter(MessageWriter):
    """WebSocket messages of a stream that is kept; each says the number of its event, and the first one its id."""

    def __init__(self, service: NativeService, name: envelope.Id, stream: str) -> None:
        super().__init__(service, name)
        self._id, self._stream, self._number = name, stream, -1

    @override
    def write(self, record: Response) -> bytes:
        self._count()
        return super().write(record)

    @override
    def fail(self, error: TgError) -> bytes:
        self._count()
        return super().fail(error)

    def _count(self) -> None:
        self._number += 1
        stream = b"" if self._number else b'"stream":%b,' % encode(self._stream)
        self._opened = b'%b%b"offset":%d,' % (envelope.opening(self._id), stream, self._number)


def frame_whole(records: Sequence[Response], service: NativeService, name: envelope.Id) -> bytes:
    """The whole answer in one WebSocket message."""
    return text_frame(envelope.response(envelope.opening(name), service.whole(records), last=True))
