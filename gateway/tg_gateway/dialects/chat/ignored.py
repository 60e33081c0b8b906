"""The body of a chat completion -> the fields that the answer does not depend on."""

from collections.abc import Iterator
from typing import Final

import msgspec

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.chat.body import ChatBody, ChatMessage, ImageUrl
from tg_schema import decode

PASSED_ON: Final = ("verbosity", "prediction", "prompt_cache_retention", "prompt_cache_options")
"""Fields that only OpenAI's API knows."""
_WITHOUT_EFFECT: Final = ("metadata", "service_tier", "store")
_KNOWN: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ChatBody))


def list_ignored(data: bytes, body: ChatBody, found: FoundModel) -> Iterator[str]:
    """The names of the fields that are ignored.

    Args:
        data: the JSON of `body`.
        body: what it says.
        found: what its `model` means.
    """
    yield from decode(dict[str, msgspec.Raw], data).keys() - _KNOWN
    names = _WITHOUT_EFFECT if "openai_fields" in found.features else (*_WITHOUT_EFFECT, *PASSED_ON)
    yield from (name for name in names if getattr(body, name) is not None)
    if any(_has_detail(message) for message in body.messages):
        yield "messages.image_url.detail"


def _has_detail(message: ChatMessage) -> bool:
    """Whether it says how closely to look at an image; "auto" says nothing."""
    parts = () if message.content is None or isinstance(message.content, str) else message.content
    return any(isinstance(part.image_url, ImageUrl) and part.image_url.detail not in {None, "auto"} for part in parts)
