"""MLC-LLM's REST API over HTTP: OpenAI's dialect answers, in MLC's style; bodies and errors are translated."""

from dataclasses import replace
from typing import Final

from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Call
from tg_gateway.dialects.embeddings import EMBEDDINGS
from tg_gateway.dialects.mlc.descriptions import MLC_DESCRIPTIONS
from tg_gateway.dialects.mlc.failures import encode_failure, refuse
from tg_gateway.dialects.mlc.parsed_calls import ParsedCallsWriter
from tg_gateway.dialects.mlc.translated_body import translate_body
from tg_gateway.dialects.openai import AnswerStyle, OpenAi
from tg_schema import TgError

STYLE: Final = AnswerStyle(
    owner="MLC-LLM",
    complete=True,
    named_by_user=True,
    model_required=False,
    encode_failure=encode_failure,
)


class MlcLlm(OpenAi):
    """Models, chats, completions and embeddings, as the clients of `mlc_llm serve` ask for them."""

    descriptions = MLC_DESCRIPTIONS

    @override
    def parse(self, call: Call) -> Ask | Answer:
        if call.operation in {"list-models", "show-model"}:
            return super().parse(call)
        call.body = translate_body(call.body)
        asked = EMBEDDINGS.parse(call) if call.operation == "embed" else super().parse(call)
        if call.operation == "chat-completion" and isinstance(asked, Ask) and not asked.streaming:
            return replace(asked, writer=ParsedCallsWriter(asked.writer))
        return asked

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))


MLC: Final = MlcLlm(STYLE)
