"""Inputs or a conversation -> its tokens, each with its place in the text: `/tokenize` and `/chat_tokenize`."""

from collections.abc import Sequence
from functools import partial

import msgspec

from tg_doors.tgi.generation_parameters import GenerateBody
from tg_gateway.dialects import Ask, Call, CompletionWriter
from tg_gateway.dialects.chat import ChatBody, find_asked_model
from tg_gateway.dialects.chat import read_request as read_chat_request
from tg_schema import TextCompletionRequest, TextCompletionResponse, Token, decode, encode
from tg_schema.errors import BadRequest, ProtocolError


class PlacedToken(msgspec.Struct, frozen=True):
    """A token; `start` and `stop` are bytes of the text, in UTF-8."""

    id: int
    text: str
    start: int
    stop: int


class TokenizedChat(msgspec.Struct, frozen=True):
    """The text and tokens of a conversation as its model reads it."""

    tokenize_response: tuple[PlacedToken, ...]
    templated_text: str


def parse_tokenize(call: Call) -> Ask:
    """The tokens of `inputs`, as a generation would read them.

    Raises:
        BadRequest: the inputs are missing or empty.
        NotFound: there is no such model.
    """
    body = decode(GenerateBody, call.body)
    if not body.inputs:
        raise BadRequest("inputs must not be empty")
    found = find_asked_model(call, body.model, required=False)
    request = TextCompletionRequest(model=found.model, operation="tokenize", token_texts=True)
    if found.may_have("raw"):
        request = msgspec.structs.replace(request, prompt=body.inputs, raw=True)
    else:
        request = msgspec.structs.replace(request, texts=(body.inputs,))
    return Ask(found.route, request, CompletionWriter(partial(encode_tokens, text=body.inputs)), streaming=False)


def parse_chat_tokenize(call: Call) -> Ask:
    """The tokens of a conversation in the shape of OpenAI's chat, after the model's template.

    Raises:
        BadRequest: as the chat door.
        NotFound: there is no such model.
    """
    body = decode(ChatBody, call.body)
    found = find_asked_model(call, body.model, required=False)
    request = msgspec.structs.replace(
        read_chat_request(body, found), operation="tokenize", token_texts=True, streaming=False, sampling=None
    )
    return Ask(found.route, request, CompletionWriter(encode_tokenized_chat), streaming=False)


def encode_tokens(records: Sequence[TextCompletionResponse], text: str) -> bytes:
    """The list of the tokens of a text."""
    return encode(place_tokens(_read_tokens(records), text))


def encode_tokenized_chat(records: Sequence[TextCompletionResponse]) -> bytes:
    """The tokens, and the text that they make."""
    tokens = _read_tokens(records)
    text = b"".join(token.data for token in tokens).decode("utf-8", "replace")
    return encode(TokenizedChat(place_tokens(tokens, text), text))


def place_tokens(tokens: Sequence[Token], text: str) -> tuple[PlacedToken, ...]:
    """Find each token in the text, one after the other.

    A token that is not in the text, such as a begin token, has no length.
    """
    data = text.encode()
    placed, start = [], 0
    for token in tokens:
        piece = token.data
        # Some vocabularies put a space before a text that has none.
        begun = piece if data.startswith(piece, start) else piece.removeprefix(b" ")
        stop = start + len(begun) if data.startswith(begun, start) else start
        placed.append(PlacedToken(token.id, data[start:stop].decode("utf-8", "replace"), start, stop))
        start = stop
    return tuple(placed)


def _read_tokens(records: Sequence[TextCompletionResponse]) -> list[Token]:
    tokens = [token for record in records for token in record.tokens]
    if len(tokens) != sum(len(record.ids) for record in records):
        raise ProtocolError("the model's service did not tell the texts of the tokens")
    return tokens
