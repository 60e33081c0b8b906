"""A prompt in a message or a buffer -> fields of the request record."""

from typing import Annotated, cast

import msgspec

from tg_doors.lmtp.buffers import BufferId, Buffers, Content, hash_content, join_contents
from tg_schema import Message, TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.sampling import TokenId


class BufferedPrompt(msgspec.Struct, frozen=True):
    """The first `upto` ids or characters of a buffer (None = all), and what follows them."""

    buffer: BufferId
    upto: Annotated[int, msgspec.Meta(ge=0)] | None = None
    append: Content = ()


Given = tuple[TokenId | Message, ...] | str | BufferedPrompt
"""Token ids, or in text mode a text or turns; also from a buffer."""


class Prompt(msgspec.Struct, frozen=True):
    """A prompt: token ids, a raw text, or the turns of a conversation.

    Attributes:
        key: the cache key of requests with the same beginning.
    """

    ids: tuple[int, ...] = ()
    text: str = ""
    turns: tuple[Message, ...] = ()
    key: str | None = None

    @property
    def content(self) -> Content:
        """The prompt in a buffer.

        Raises:
            BadRequest: turns are no text.
        """
        if self.turns:
            raise BadRequest("buffer_id: a buffer has no turns; send a text, or token ids")
        return self.ids or self.text

    @property
    def root(self) -> str:
        """The cache key that this prompt shares with prompts that continue from its answer."""
        return self.key or hash_content(self.content)

    def place(self) -> TextCompletionRequest:
        """A request record with nothing but this prompt."""
        if self.turns:
            return TextCompletionRequest(messages=self.turns).shorten()
        raw = bool(self.text)
        return TextCompletionRequest(prompt=self.text or None, raw=raw, prompt_ids=self.ids, cache_key=self.key)


def read_prompt(given: Given, mode: str, buffers: Buffers) -> Prompt:
    """Read the prompt of a GENERATE or a SCORE.

    Raises:
        BadRequest: the prompt is empty, or the mode does not accept it.
        NotFound: there is no such buffer.
    """
    key = None
    if isinstance(given, BufferedPrompt):
        beginning = buffers.read(given.buffer, given.upto)
        key = buffers.find_key(given.buffer, beginning)
        given = join_contents(beginning, given.append)
    if not given:
        raise BadRequest("prompt: it is empty")
    if isinstance(given, str):
        if mode == "ids":
            raise BadRequest('prompt: this is a text; send token ids, or "mode": "text"')
        return Prompt(text=given, key=key)
    # A single pass, since there may be a hundred thousand ids.
    kinds = set(map(type, given))
    if mode == "ids":
        if Message in kinds:
            raise BadRequest('prompt: these are turns; send token ids, or "mode": "text"')
        return Prompt(ids=cast("tuple[int, ...]", given), key=key)
    if int in kinds:
        raise BadRequest('prompt: these are token ids; in "mode": "text" send a text or turns')
    return Prompt(turns=cast("tuple[Message, ...]", given), key=key)
