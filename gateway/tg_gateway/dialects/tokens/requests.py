"""Bodies -> request records for token ids, and for the text of ids."""

from typing import Final

import msgspec

from tg_gateway.dialects import FoundModel, InvalidParameter
from tg_gateway.dialects.chat import ChatBody, check_peer, decode_body, read_request
from tg_gateway.dialects.tokens.bodies import DetokenizeBody, TokenizeBody
from tg_schema import TextCompletionRequest

_REFUSED: Final = {
    "continue_final_message": "send a conversation that the assistant has to answer",
    "chat_template": "the model has its own",
}


def read_tokenize(body: TokenizeBody, data: bytes, found: FoundModel) -> tuple[TextCompletionRequest, ...]:
    """The request for the ids, and the request for the model's description.

    Args:
        body: what the client sent.
        data: its JSON.
        found: what its `model` means.

    Raises:
        BadRequest: there is nothing to tokenize, or the model's ids are not available.
    """
    for name, advice in _REFUSED.items():
        value = getattr(body, name)
        if value is not None and value is not False:
            raise InvalidParameter(f"{name} is not supported: {advice}", name, "unsupported_parameter")
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
    check_peer(found, [asked])
    return asked, TextCompletionRequest(operation="list-models", model=found.model)


def read_detokenize(body: DetokenizeBody, found: FoundModel) -> TextCompletionRequest:
    """The request for the text.

    Raises:
        BadRequest: there are no ids, or the model is a plain peer's.
    """
    if not body.tokens:
        raise InvalidParameter("tokens: send at least one token id", "tokens", "missing_required_parameter")
    asked = TextCompletionRequest(operation="detokenize", model=found.model, prompt_ids=body.tokens)
    check_peer(found, [asked])
    return asked


def _read_prompt(prompt: str, body: TokenizeBody) -> TextCompletionRequest:
    if not prompt:
        raise InvalidParameter("prompt must not be empty", "prompt", "invalid_value")
    if body.add_special_tokens is False:
        return TextCompletionRequest(texts=(prompt,))
    return TextCompletionRequest(prompt=prompt, raw=True)


def _read_chat(body: TokenizeBody, data: bytes, found: FoundModel) -> TextCompletionRequest:
    if body.add_special_tokens:
        sentence = "add_special_tokens: the model's template adds those of a conversation; leave it out"
        raise InvalidParameter(sentence, "add_special_tokens", "unsupported_value")
    if body.add_generation_prompt is False:
        sentence = "add_generation_prompt must be true: ids are those that an answer follows"
        raise InvalidParameter(sentence, "add_generation_prompt", "unsupported_value")
    return read_request(decode_body(ChatBody, data), found)
