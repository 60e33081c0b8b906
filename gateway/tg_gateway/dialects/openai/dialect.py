"""OpenAI's protocol over HTTP: what a path means, and how it is asked, answered and refused."""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Batch, Call, Dialect, Writer, show_ignored
from tg_gateway.dialects.openai.asked_model import find_asked_model
from tg_gateway.dialects.openai.chat_body import ChatBody
from tg_gateway.dialects.openai.chat_ignored import list_ignored
from tg_gateway.dialects.openai.chat_request import DIALECT, read_request
from tg_gateway.dialects.openai.chat_writers import ChatBodyWriter, ChatStreamWriter
from tg_gateway.dialects.openai.completion_body import CompletionBody
from tg_gateway.dialects.openai.completion_request import is_scoring, list_unknown, read_prompts, read_requests
from tg_gateway.dialects.openai.completion_writers import CompletionBodyWriter, CompletionStreamWriter
from tg_gateway.dialects.openai.failures import decode_body, refuse
from tg_gateway.dialects.openai.models import encode_model, encode_models
from tg_gateway.dialects.openai.text_inputs import TextInput
from tg_schema import TextCompletionResponse, TgError


class OpenAi(Dialect):
    """Models, chat completions and completions, as OpenAI's SDKs ask for them."""

    @override
    def parse(self, call: Call) -> Ask | Answer:
        match call.operation:
            case "list-models":
                return Answer(encode_models(call.catalogue))
            case "show-model":
                return Answer(encode_model(call.catalogue, call.path["model"]))
            case "completion":
                return self._parse_completion(call)
            case _:
                return self._parse_chat(call)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))

    def _parse_chat(self, call: Call) -> Ask:
        body = decode_body(ChatBody, call.body)
        found = find_asked_model(call, body.model)
        request = read_request(body, found)
        writer = _make_chat_writer(body, found.model or body.model or "")
        writer.headers = {**writer.headers, **show_ignored(DIALECT, list_ignored(call.body, body, found))}
        return Ask(found.route, request, writer, bool(body.stream))

    def _parse_completion(self, call: Call) -> Ask:
        body = decode_body(CompletionBody, call.body)
        found = find_asked_model(call, body.model)
        prompts = read_prompts(body)
        requests = read_requests(body, prompts, found)
        writer = _make_completion_writer(body, prompts, found.model or body.model or "")
        writer.headers = {**writer.headers, **show_ignored(DIALECT, list_unknown(call.body))}
        return Ask(found.route, Batch(requests, body.n or 1), writer, bool(body.stream))


def _make_completion_writer(
    body: CompletionBody, prompts: Sequence[TextInput], model: str
) -> Writer[TextCompletionResponse]:
    answers = len(prompts) * (body.n or 1)
    scored = prompts if is_scoring(body) else ()
    if not body.stream:
        return CompletionBodyWriter(model, answers, scored=scored)
    options = body.stream_options
    return CompletionStreamWriter(model, answers, include_usage=bool(options and options.include_usage), scored=scored)


def _make_chat_writer(body: ChatBody, model: str) -> Writer[TextCompletionResponse]:
    n = body.n or 1
    if not body.stream:
        return ChatBodyWriter(model, n)
    options = body.stream_options
    return ChatStreamWriter(model, n, include_usage=bool(options and options.include_usage))


OPENAI: Final = OpenAi()
