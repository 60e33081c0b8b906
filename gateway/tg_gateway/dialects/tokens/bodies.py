"""The bodies of `/tokenize` and `/detokenize`, by vLLM's API reference."""

from typing import Any

import msgspec

from tg_schema.sampling import TokenId


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Either a text or a conversation, which has the fields of a chat; null is as good as absent.

    Attributes:
        add_special_tokens: whether a text gets the special tokens that a prompt begins with; true by default. The
            model's own template says what a conversation gets.
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
