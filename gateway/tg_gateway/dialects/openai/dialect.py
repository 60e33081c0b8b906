"""OpenAI's protocol over HTTP: what a path means, and how it is asked, answered and refused."""

from typing import Final

from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Call, Dialect, Writer, show_ignored
from tg_gateway.dialects.openai.chat_body import ChatBody
from tg_gateway.dialects.openai.chat_ignored import list_ignored
from tg_gateway.dialects.openai.chat_request import DIALECT, read_request
from tg_gateway.dialects.openai.chat_writers import ChatBodyWriter, ChatStreamWriter
from tg_gateway.dialects.openai.failures import InvalidParameter, decode_body, refuse
from tg_gateway.dialects.openai.models import encode_model, encode_models
from tg_schema import TextCompletionResponse, TgError


class OpenAi(Dialect):
    """Models and chat completions, as OpenAI's SDKs ask for them."""

    @override
    def parse(self, call: Call) -> Ask | Answer:
        match call.operation:
            case "list-models":
                return Answer(encode_models(call.catalogue))
            case "show-model":
                return Answer(encode_model(call.catalogue, call.path["model"]))
            case _:
                return self._parse_chat(call)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))

    def _parse_chat(self, call: Call) -> Ask:
        body = decode_body(ChatBody, call.body)
        if not body.model:
            raise InvalidParameter(
                "model is missing: name one of GET /v1/models", "model", "missing_required_parameter"
            )
        found = call.catalogue.find_model(body.model)
        call.route = found.route
        request = read_request(body, found)
        writer = _make_writer(body, found.model or body.model)
        writer.headers = {**writer.headers, **show_ignored(DIALECT, list_ignored(call.body, body, found))}
        return Ask(found.route, request, writer, bool(body.stream))


def _make_writer(body: ChatBody, model: str) -> Writer[TextCompletionResponse]:
    n = body.n or 1
    if not body.stream:
        return ChatBodyWriter(model, n)
    options = body.stream_options
    return ChatStreamWriter(model, n, include_usage=bool(options and options.include_usage))


OPENAI: Final = OpenAi()
