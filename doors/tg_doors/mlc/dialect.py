"""MLC-LLM's REST API over HTTP: OpenAI's dialect answers, in MLC's style; bodies and errors are translated."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Final

from typing_extensions import override

from tg_doors.mlc.failures import Validation, encode_failure, refuse
from tg_doors.mlc.translated_body import take_suffix, translate_body
from tg_doors.mlc.writers import ParsedCallsWriter, ParsedChat, SpelledCallsWriter, SuffixWriter
from tg_gateway.dialects import Answer, Ask, Batch, Call, Description, Mount, Writer
from tg_gateway.dialects.chat import AnswerStyle, ChatCompletion
from tg_gateway.dialects.embeddings import EMBEDDINGS
from tg_gateway.dialects.openai import OpenAi
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError

STYLE: Final = AnswerStyle(
    owner="MLC-LLM",
    complete=True,
    named_by_user=True,
    model_required=False,
    encode_failure=encode_failure,
)


def _describe(theirs: Description) -> Description:
    """Chunks have MLC's own names in places, so events are not described; no model need be named."""
    required = tuple(name for name in theirs.required if name != "model")
    answer = ParsedChat if theirs.answer is ChatCompletion else theirs.answer
    return replace(theirs, group="MLC-LLM", failure=(str, Validation), required=required, event=None, answer=answer)


class MlcLlm(OpenAi):
    """Models, chats, completions and embeddings, as the clients of `mlc_llm serve` ask for them."""

    descriptions: ClassVar[Mapping[str, Description]] = MappingProxyType(
        {
            operation: _describe(theirs)
            for operation, theirs in (*OpenAi.descriptions.items(), ("embed", EMBEDDINGS.descriptions["embed"]))
        }
    )

    @override
    def parse(self, call: Call) -> Ask | Answer:
        if call.operation in {"list-models", "show-model"}:
            return super().parse(call)
        call.body = translate_body(call.body)
        if call.operation == "embed":
            return EMBEDDINGS.parse(call)
        suffix = ""
        if call.operation == "completion":
            call.body, suffix = take_suffix(call.body)
        asked = super().parse(call)
        if not isinstance(asked, Ask):
            return asked
        writer = _choose_writer(asked, suffix)
        if asked.streaming:
            # The clients in MLC's documentation treat each HTTP chunk as one event, and every event as JSON.
            writer.events_apart, writer.keep_alive = True, b""
        return replace(asked, writer=writer)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))


def _choose_writer(asked: Ask, suffix: str) -> Writer[TextCompletionResponse]:
    if isinstance(asked.request, Batch):
        choices = len(asked.request.requests) * asked.request.answers
        return SuffixWriter(asked.writer, choices, suffix) if suffix else asked.writer
    if not asked.streaming:
        return ParsedCallsWriter(asked.writer)
    request: TextCompletionRequest = asked.request
    return SpelledCallsWriter(asked.writer, request.answers) if request.tools else asked.writer


MLC: Final = MlcLlm(STYLE)

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/mlc/v1/models", MLC, "list-models"),
    Mount("GET", "/mlc/v1/models/{model}", MLC, "show-model"),
    Mount("POST", "/mlc/v1/chat/completions", MLC, "chat-completion", large=True),
    Mount("POST", "/mlc/v1/completions", MLC, "completion", large=True),
    Mount("POST", "/mlc/v1/embeddings", MLC, "embed", large=True),
)
"""Where MLC-LLM's clients find us: in place of its server's base URL they have `http://HOST:PORT/mlc/v1`."""
