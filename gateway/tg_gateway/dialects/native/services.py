"""Our own JSON <-> records: field names with underscores, keys that are null left out.

TrustGraph's clients read these shapes: `end_of_stream` is always present, and text is never null.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects.native.event_shape import event_encoder
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


@dataclass(frozen=True, slots=True)
class NativeService:
    """How one service's requests are parsed and its answers encoded, by pure functions.

    Attributes:
        spec: the service.
        parse: the request that a body asks for; raises BadRequest, whose message names what is wrong.
        event: the JSON of one record of a stream, or of the whole answer as a single record.
        failure: the JSON of a stream's last event, when it failed after its first byte.
        parts: the JSON of a whole answer that has several records; None = that of the last one, as an agent's thoughts
            are no part of its answer.
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
    """The first answer and the usage of all; in `parts` all answers, as a stream would have told them."""
    summary = _encode_completion(TextCompletionResponse.summarize(records))
    parts = map(_encode_completion, TextCompletionResponse.arrange(records))
    return b'%b,"parts":[%b]}' % (summary[:-1], b",".join(parts))


_encode_prompt = event_encoder(PromptResponse, {"end_of_stream": False})
_encode_agent = event_encoder(
    AgentResponse,
    {"chunk_type": "answer", "content": "", "end_of_message": False, "end_of_dialog": False},
    also={"chunk_type": "message_type"},  # TrustGraph's name for the same
)


def _encode_prompt_event(record: PromptResponse) -> bytes:
    """Text or an object; one of them always stands."""
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
