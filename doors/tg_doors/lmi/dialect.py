"""LMI's protocol over HTTP: which protocol a body is in, and how requests, answers and errors are encoded."""

from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Literal

import msgspec
from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_doors import LmiConfig
from tg_doors.lmi.answer_shapes import Details, GeneratedText, TokenLine
from tg_doors.lmi.batch_writers import GeneratedTextsWriter, Outputs, OutputsWriter
from tg_doors.lmi.custom_formatters import translate_body
from tg_doors.lmi.failures import (
    LMI_FIELDS,
    FrontEndFailure,
    HandlerFailure,
    PayloadFailure,
    abridge,
    read_fields,
    refuse,
)
from tg_doors.lmi.generation import list_ignored, read_generation, read_generations
from tg_doors.lmi.invocation import Invocation, InvocationBody, read_invocation
from tg_doors.lmi.line_writer import JSON_LINES, Metered
from tg_doors.lmi.output_formats import LmiSettings, LmiTable, choose_format, read_settings
from tg_doors.lmi.parameters import Order
from tg_doors.lmi.payload_parts import EVENT_STREAM, PayloadPartsWriter
from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Batch,
    Call,
    Catalogue,
    Description,
    Dialect,
    FoundModel,
    Mount,
    Writer,
    show_ignored,
)
from tg_gateway.dialects.openai import MOUNTS as OPENAI_MOUNTS
from tg_gateway.dialects.openai import OpenAi
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode, encode, try_decode
from tg_schema.errors import BadRequest, Unavailable

DIALECT: Final = "lmi"
"""The name of this wire format in the log."""
BATCH_FORMATS: Final = ("json", "jsonlines")
"""The output formatters of dynamic batches."""
ADAPTER_HEADER: Final = "X-Amzn-SageMaker-Adapter-Identifier"
_DOORS: Final = {mount.path: mount for mount in OPENAI_MOUNTS}
_OTHERS: Final[Mapping[str, Mount]] = {
    "messages": _DOORS["/v1/chat/completions"],
    "prompt": _DOORS["/v1/completions"],
}
"""Key of a body without `inputs` -> the door whose request the body is."""

PARTS: Final = "generate-parts"
"""The operation whose answer comes in AWS's framing."""


class DescribedItem(msgspec.Struct, frozen=True):
    """One of a list of answers; a failed one has `error`, and no text."""

    generated_text: str = ""
    details: Details | None = None
    error: str = ""
    code: int = 0
    message: str = ""


class Health(msgspec.Struct, frozen=True):
    """The answer to `/ping`."""

    status: Literal["Healthy", "Unhealthy"]


_DESCRIBED: Final = tuple(OpenAi.descriptions[name] for name in ("chat-completion", "completion"))
"""Operations of OpenAI's doors, whose bodies get the same answers here."""
_FAILURES: Final = (FrontEndFailure, PayloadFailure, HandlerFailure, GeneratedText, TokenLine, OpenAi.failure)
_FEW: Final[Mapping[str, Any]] = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}}
_describe = partial(Description, group="Large Model Inference", failure=_FAILURES)
_ask = partial(
    _describe,
    body=(InvocationBody, *(other.body for other in _DESCRIBED)),
    path={"model": "tinydemo", "version": "1"},
    raises=ASKING,
)


class Lmi(Dialect):
    """The API of an LMI container, and of SageMaker's endpoints with one.

    Args:
        settings: the settings of each model, as an operator has configured them.
    """

    descriptions: ClassVar[Mapping[str, Description]] = {
        "generate": _ask(
            summary="Continue a text, or each of several",
            answer=(GeneratedText, tuple[DescribedItem, ...], Metered, *(other.answer for other in _DESCRIBED)),
            events=EVENTS,
            event=(TokenLine, *(kind for other in _DESCRIBED for kind in other.event)),
            done=_DESCRIBED[0].done,
            further={JSON_LINES: (TokenLine, Outputs, Metered, _DESCRIBED[0].event[0]), "text/plain": None},
            examples={
                "whole": _FEW,
                "lines": {**_FEW, "stream": True},
                "details": {**_FEW, "parameters": {"max_new_tokens": 4, "details": True}},
                "events": {**_FEW, "parameters": {"max_new_tokens": 4, "output_formatter": "sse"}, "stream": True},
                "metered": {**_FEW, "parameters": {"max_new_tokens": 4, "output_formatter": "3p"}},
                "several": {"inputs": ["One", "Two"], "parameters": {"max_new_tokens": 4}},
                "chat": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
            },
        ),
        PARTS: _ask(
            summary="Continue a text, in parts of AWS's event stream",
            further={EVENT_STREAM: None},
            examples={"lines": {**_FEW, "stream": True}},
        ),
        "ping": _describe(
            summary="Tell whether any model can be asked",
            answer=Health,
            failure=(Health, *_FAILURES),
            raises=(Unavailable,),
        ),
    }

    def __init__(self, settings: LmiTable = LmiTable()) -> None:  # noqa: B008 - frozen
        self._settings = settings

    @override
    def configure(self, config: GatewayConfig) -> "Lmi":
        return Lmi(read_settings(config.door(LmiConfig)))

    @override
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Any]:
        if call.operation == "ping":
            return _show_health(call.catalogue)
        # The model in a body is known only after reading it, so the formatter is the one of the path's model or of the
        # default model.
        formatter = self._settings.find(call.catalogue, call.path.get("model")).input_formatter
        if formatter is not None:
            call.body = translate_body(formatter, call.body, call.headers)
        other = _find_other(read_fields(call.body))
        asked = self._parse(call) if other is None else _hand_over(call, other)
        if call.operation == PARTS and isinstance(asked, Ask):
            return replace(asked, writer=PayloadPartsWriter(asked.writer))
        return asked

    @override
    def abridge(self, body: bytes) -> bytes:
        return abridge(body, ("inputs", *_OTHERS, "model", "stream"))

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        sent = read_fields(call.body)
        other = _find_other(sent)
        if other is not None:
            return other.dialect.refuse(error, status, replace(call, operation=other.operation))
        model = call.path.get("model") or try_decode(str, bytes(sent.get("model", b"null")))
        settings = self._settings.find(call.catalogue, model)
        return refuse(
            error,
            status,
            # If the body is empty, it was not read.
            sent if call.body else None,
            compatible=settings.compatible,
            rolling=settings.rolling,
            formatter=settings.output_name,
        )

    def _parse(self, call: Call) -> Ask:
        asked = read_invocation(call.body)
        found = call.catalogue.find_model(call.path.get("model") or asked.model)
        call.route = found.route
        settings = self._settings.find(call.catalogue, found.model)
        ask = _ask_batch if asked.listed or not settings.rolling else _ask_one
        return ask(call, asked, found, settings)


def _ask_one(call: Call, asked: Invocation, found: FoundModel, settings: LmiSettings) -> Ask:
    parameters = asked.parameters
    name = parameters.output_formatter or settings.output_name
    form = choose_format(name, settings.own, stream=asked.stream, events=settings.compatible)
    if parameters.generated > 1 and not form.several:
        raise BadRequest(
            f"parameters.{parameters.several_name}: this endpoint's output formatter writes one answer; leave it out, "
            "or name another formatter"
        )
    streaming = asked.stream if form.streaming is None else form.streaming
    order = _make_order(asked.texts[0], asked, found, settings)
    request = read_generation(
        order.text,
        parameters,
        found,
        _find_adapter(call, asked, 0),
        streaming=streaming,
        tokens=form.tokens or order.details,
    )
    alternatives = order.details if form.alternatives is None else form.alternatives
    return _ask_for(call, asked, found, request, form.make(order), streaming=streaming, alternatives=alternatives)


def _ask_batch(call: Call, asked: Invocation, found: FoundModel, settings: LmiSettings) -> Ask:
    by_stream = "jsonlines" if asked.stream else "json"
    # Only these of the configurable formatters apply to lists.
    usual = settings.output_name if settings.output_name in BATCH_FORMATS else by_stream
    name = asked.parameters.output_formatter or usual
    _check_batch(asked, name)
    streaming = name == "jsonlines"
    adapters = [_find_adapter(call, asked, number) for number in range(len(asked.texts))]
    requests = read_generations(asked.texts, asked.parameters, found, adapters, streaming=streaming)
    orders = [_make_order(text, asked, found, settings) for text in asked.texts]
    writer: Writer[TextCompletionResponse] = OutputsWriter(orders) if streaming else GeneratedTextsWriter(orders)
    batch = Batch(requests, independent=True)
    return _ask_for(call, asked, found, batch, writer, streaming=streaming, alternatives=False)


def _ask_for(
    call: Call,
    asked: Invocation,
    found: FoundModel,
    request: TextCompletionRequest | Batch,
    writer: Writer[Any],
    *,
    streaming: bool,
    alternatives: bool,
) -> Ask:
    """The request, with the header that lists its ignored parameters."""
    # Ignore the version: models have none here.
    versions = (name for name in ("version",) if name in call.path)
    ignored = list_ignored(asked.parameters, found, alternatives=alternatives)
    headers = show_ignored(DIALECT, (*asked.unknown, *versions, *ignored))
    return Ask(found.route, request, writer, streaming, fields=LMI_FIELDS, headers=headers)


def _make_order(text: str, asked: Invocation, found: FoundModel, settings: LmiSettings) -> Order:
    parameters = asked.parameters
    asks = settings.compatible if parameters.details is None else parameters.details
    details = asks or parameters.wants_prefill or parameters.generated > 1
    return Order(text, parameters, asked.given, settings.compatible, details, found.model or "")


def _check_batch(asked: Invocation, name: str) -> None:
    parameters = asked.parameters
    # Without a rolling batch, one text is a batch of its own.
    alone = ("a dynamic batch", "leave it out")
    what, advice = ("a list of inputs", "send one text, or leave it out") if asked.listed else alone
    details, several = parameters.details_name, parameters.several_name
    BadRequest.refuse(
        {
            f"parameters.output_formatter: {what} has {' and '.join(BATCH_FORMATS)} alone": name not in BATCH_FORMATS,
            f"parameters.{details}: {what} has no details; {advice}": details is not None,
            f"parameters.{several}: {what} has one answer for each text; {advice}": parameters.generated > 1,
        }
    )


def _find_adapter(call: Call, asked: Invocation, number: int) -> str | None:
    return asked.adapters[number] if asked.adapters else call.headers.get(ADAPTER_HEADER)


def _find_other(sent: Mapping[str, msgspec.Raw]) -> Mount | None:
    """The operation of OpenAI's door that this body is for; None = it is LMI's, or of no known protocol."""
    return None if "inputs" in sent else next((other for key, other in _OTHERS.items() if key in sent), None)


def _hand_over(call: Call, other: Mount) -> Ask | Answer | Awaitable[Any]:
    """Handle a request as OpenAI's door does; only the path may name its model."""
    fields = decode(dict[str, msgspec.Raw], call.body)
    path = call.path.get("model")
    # LMI's clients name no model: their endpoint has only one.
    if path or bytes(fields.get("model", b"null")) == b"null":
        found = call.catalogue.find_model(path)
        call.route = found.route
        if not (name := path or found.model):
            raise Unavailable("no live processor serves a model; ask again later", retry_after=1.0)
        fields["model"] = msgspec.Raw(encode(name))
    handed = replace(call, operation=other.operation, body=encode(fields))
    try:
        return other.dialect.parse(handed)
    finally:
        # Set it for a refused request too, so that the log names the request's service.
        call.route = handed.route or call.route


def _show_health(catalogue: Catalogue) -> Answer:
    """`GET /ping`: whether any model can be asked now."""
    status = 200 if catalogue.models() else Unavailable.status
    return Answer(encode(Health("Healthy" if status == 200 else "Unhealthy")), status)


LMI: Final = Lmi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/invocations", LMI, "generate", large=True),
    Mount("POST", "/predictions/{model}", LMI, "generate", large=True),
    Mount("POST", "/predictions/{model}/{version}", LMI, "generate", large=True),
    Mount("POST", "/models/{model}/invoke", LMI, "generate", large=True),
    # The paths of SageMaker's clients, whose address can be set; an endpoint is a model.
    Mount("POST", "/endpoints/{model}/invocations", LMI, "generate", large=True),
    Mount("POST", "/endpoints/{model}/invocations-response-stream", LMI, PARTS, large=True),
    # SageMaker's health check has no key.
    Mount("GET", "/ping", LMI, "ping", keyless=True),
)
"""Where LMI's clients find us: their base URL is the gateway's, without a path."""
