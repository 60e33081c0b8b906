"""Token ids over HTTP: how they are asked, answered and refused, in the shape of OpenAI's API."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import ASKING, Answer, Ask, Batch, Call, Description, Dialect, Mount, show_ignored
from tg_gateway.dialects.chat import DIALECT, ChatBody, Failure, decode_body, find_asked_model, refuse
from tg_gateway.dialects.tokens.bodies import DetokenizeBody, TokenizeBody
from tg_gateway.dialects.tokens.requests import read_detokenize, read_tokenize
from tg_gateway.dialects.tokens.writers import Detokenized, DetokenizeWriter, Tokenized, TokenizeWriter
from tg_schema import TgError, decode

_describe = partial(Description, group="Token ids", failure=Failure, raises=ASKING)

TOKENS_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "tokenize": _describe(
        summary="Make token ids of a text or a conversation",
        body=TokenizeBody,
        answer=Tokenized,
        examples={"text": {"prompt": "Once upon a time"}},
    ),
    "detokenize": _describe(
        summary="Make a text of token ids",
        body=DetokenizeBody,
        required=("tokens",),
        answer=Detokenized,
        examples={"ids": {"tokens": [72, 73]}},
    ),
}


class TokensApi(Dialect):
    """`/tokenize` and `/detokenize`, as vLLM's clients ask for them; a body without `model` is the default flow's."""

    descriptions = TOKENS_DESCRIPTIONS

    @override
    def parse(self, call: Call) -> Ask:
        return self._parse_tokenize(call) if call.operation == "tokenize" else self._parse_detokenize(call)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))

    def _parse_tokenize(self, call: Call) -> Ask:
        body = decode_body(TokenizeBody, call.body)
        found = find_asked_model(call, body.model, required=False)
        writer = TokenizeWriter(with_texts=bool(body.return_token_strs))
        writer.headers = _show_unknown(call, TokenizeBody, *([ChatBody] if body.messages else []))
        return Ask(found.route, Batch(read_tokenize(body, call.body, found)), writer, streaming=False)

    def _parse_detokenize(self, call: Call) -> Ask:
        body = decode_body(DetokenizeBody, call.body)
        found = find_asked_model(call, body.model, required=False)
        writer = DetokenizeWriter()
        writer.headers = _show_unknown(call, DetokenizeBody)
        return Ask(found.route, read_detokenize(body, found), writer, streaming=False)


def _show_unknown(call: Call, *bodies: type[msgspec.Struct]) -> dict[str, str]:
    known = {field.encode_name for body in bodies for field in msgspec.structs.fields(body)}
    return show_ignored(DIALECT, decode(dict[str, msgspec.Raw], call.body).keys() - known)


TOKENS: Final = TokensApi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/tokenize", TOKENS, "tokenize", large=True),
    Mount("POST", "/detokenize", TOKENS, "detokenize", large=True),
)
"""Where token ids can be asked for."""
