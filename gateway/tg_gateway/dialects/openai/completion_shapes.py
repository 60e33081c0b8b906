"""The objects of a completion in OpenAI's shape."""

from typing import Final

import msgspec

from tg_gateway.dialects.chat import ChatEnding, CompletionUsage

TEXT_COMPLETION: Final = "text_completion"
"""The `object` of chunks and bodies alike."""


class CompletionLogprobs(msgspec.Struct, frozen=True):
    r"""The tokens of a text, one list for each thing that is known of them.

    Attributes:
        tokens: their texts; half a character as its bytes, such as `bytes:\xe2\x82`.
        token_logprobs: null for the first token of a prompt.
        top_logprobs: the likeliest texts and the token's own; null for the first token of a prompt.
        text_offset: characters of the choice's text before each.
    """

    text_offset: tuple[int, ...]
    token_logprobs: tuple[float | None, ...]
    tokens: tuple[str, ...]
    top_logprobs: tuple[dict[str, float] | None, ...]


class CompletionChoice(msgspec.Struct, frozen=True):
    """An answer, or a piece of it; the SDKs require every field."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: ChatEnding | None


class TextCompletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a whole answer."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: CompletionUsage | None = None
