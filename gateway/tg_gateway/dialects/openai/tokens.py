"""Token ids over HTTP: how requests, answers and errors are encoded, in OpenAI's style."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    Ask,
    Batch,
    Call,
    CompletionWriter,
    Description,
    FoundModel,
    InvalidParameter,
    Mount,
    list_unknown,
    show_ignored,
)
from tg_gateway.dialects.chat import (
    DIALECT,
    ChatBody,
    Failure,
    OpenAiShaped,
    decode_body,
    find_asked_model,
    read_request,
    refuse_unsupported,
)
from tg_schema import TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.deltas import join_text
from tg_schema.sampling import TokenId


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Either a text or a conversation, which has the fields of a chat; null is as good as absent.

    Attributes:
        add_special_tokens: whether a text gets the special tokens that a prompt begins with; true by default. The
            model's own template decides which tokens a conversation gets.
        return_token_strs: whether the answer has the text of each token.
        add_generation_prompt: only true: ids are those that a chat's answer follows.
    """

    model: str | None = None
    prompt: str | None = None
    messages: tuple[Any, ...] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None

    # Refused, since they would change the ids.
    continue_final_message: bool | None = None
    chat_template: Any = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of tokens."""

    model: str | None = None
    tokens: tuple[TokenId, ...] | None = None


_REFUSED: Final = {
    "continue_final_message": "send a conversation that the assistant has to answer",
    "chat_template": "the model has its own",
}


def read_tokenize(body: TokenizeBody, data: bytes, found: FoundModel) -> tuple[TextCompletionRequest, ...]:
    """The request for the ids, and the request for the model's description.

    Args:
        body: the client's body.
        data: its JSON.
        found: the model that its `model` means.

    Raises:
        BadRequest: there is nothing to tokenize, or the model's ids are not available.
    """
    refuse_unsupported(body, _REFUSED)
    if (body.prompt is None) is (body.messages is None):
        raise InvalidParameter("send either prompt or messages", "prompt", "missing_required_parameter")
    request = _read_chat(body, data, found) if body.prompt is None else _read_prompt(body.prompt, body)
    asked = msgspec.structs.replace(
        request,
        operation="tokenize",
        model=found.model,
        streaming=False,
        sampling=None,
        token_texts=bool(body.return_token_strs),
    )
    found.check(asked)
    return asked, TextCompletionRequest(operation="list-models", model=found.model)


def _read_prompt(prompt: str, body: TokenizeBody) -> TextCompletionRequest:
    if not prompt:
        raise InvalidParameter("prompt must not be empty", "prompt", "invalid_value")
    if body.add_special_tokens is False:
        return TextCompletionRequest(texts=(prompt,))
    return TextCompletionRequest(prompt=prompt, raw=True)


def _read_chat(body: TokenizeBody, data: bytes, found: FoundModel) -> TextCompletionRequest:
    InvalidParameter.refuse_first(
        (
            body.add_special_tokens,
            "add_special_tokens",
            "unsupported_value",
            "add_special_tokens: the model's template adds those of a conversation; leave it out",
        ),
        (
            body.add_generation_prompt is False,
            "add_generation_prompt",
            "unsupported_value",
            "add_generation_prompt must be true: ids are those that an answer follows",
        ),
    )
    return read_request(decode_body(ChatBody, data), found)


class Tokenized(msgspec.Struct, frozen=True):
    """The answer to `/tokenize`; unknown fields, and fields that were not requested, are null."""

    count: int
    max_model_len: int | None
    tokens: tuple[int, ...]
    token_strs: tuple[str, ...] | None


class Detokenized(msgspec.Struct, frozen=True):
    """The answer to `/detokenize`."""

    prompt: str


def _encode_ids(records: Sequence[TextCompletionResponse], *, with_texts: bool) -> bytes:
    """The ids, and the length of the model's context; `with_texts` with the text of each token."""
    ids = tuple(number for record in records for number in record.ids)
    lengths = [model.context_length for record in records for model in record.models if model.context_length]
    texts = tuple(token.text for record in records for token in record.tokens) if with_texts else None
    return encode(Tokenized(len(ids), lengths[0] if lengths else None, ids, texts))


def _encode_text(records: Sequence[TextCompletionResponse]) -> bytes:
    return encode(Detokenized(join_text(record.response for record in records) or ""))


_describe = partial(Description, group="Token ids", failure=Failure, raises=ASKING)


class TokensApi(OpenAiShaped):
    """`/tokenize` and `/detokenize`, as vLLM's clients ask for them; a body without `model` is the default flow's."""

    descriptions: ClassVar[Mapping[str, Description]] = {
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

    @override
    def parse(self, call: Call) -> Ask:
        return self._parse_tokenize(call) if call.operation == "tokenize" else self._parse_detokenize(call)

    def _parse_tokenize(self, call: Call) -> Ask:
        body = decode_body(TokenizeBody, call.body)
        found = find_asked_model(call, body.model, required=False)
        headers = show_ignored(DIALECT, list_unknown(call.body, TokenizeBody, *([ChatBody] if body.messages else [])))
        writer = CompletionWriter(partial(_encode_ids, with_texts=bool(body.return_token_strs)))
        batch = Batch(read_tokenize(body, call.body, found), uniform=True)
        return Ask(found.route, batch, writer, streaming=False, headers=headers)

    def _parse_detokenize(self, call: Call) -> Ask:
        body = decode_body(DetokenizeBody, call.body)
        found = find_asked_model(call, body.model, required=False)
        if not body.tokens:
            raise InvalidParameter("tokens: send at least one token id", "tokens", "missing_required_parameter")
        asked = TextCompletionRequest(operation="detokenize", model=found.model, prompt_ids=body.tokens)
        found.check(asked)
        headers = show_ignored(DIALECT, list_unknown(call.body, DetokenizeBody))
        return Ask(found.route, asked, CompletionWriter(_encode_text), streaming=False, headers=headers)


TOKENS: Final = TokensApi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/tokenize", TOKENS, "tokenize", large=True),
    Mount("POST", "/detokenize", TOKENS, "detokenize", large=True),
)
"""Where token ids can be asked for."""
