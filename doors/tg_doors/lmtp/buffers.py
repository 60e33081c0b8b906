"""BUFFER -> content that a client sends once and then refers to by name: bounded, and dropped with its socket."""

import hashlib
from typing import Final

from tg_doors.lmtp.messages import StreamId
from tg_schema import encode
from tg_schema.errors import BadRequest, NotFound, TooLarge
from tg_schema.sampling import TokenId

BufferId = StreamId | str
Content = tuple[TokenId, ...] | str
MAX_BUFFERS = 64
"""The most buffers of one socket."""
MAX_BUFFERED_UNITS: Final = 128 * 1024
"""Token ids and characters that all buffers of one socket have together."""


class Buffers:
    """The buffers of one socket."""

    def __init__(self) -> None:
        self._contents: dict[BufferId, Content] = {}
        # The key of each buffer, and the length that a request must name for the key to apply.
        self._roots: dict[BufferId, tuple[str, int]] = {}

    def append(self, name: BufferId, more: Content) -> int:
        """Add to a buffer, which begins with its first use.

        Returns:
            How many ids or characters it has now.

        Raises:
            BadRequest: text for a buffer of ids, or ids for a buffer of text.
            TooLarge: too much is buffered, or too many buffers are.
        """
        content = join_contents(self._contents.get(name, ()), more)
        # Sum again each time: there are at most `MAX_BUFFERS` numbers, and a running count could drift.
        held = sum(map(len, self._contents.values()))
        if held + len(more) > MAX_BUFFERED_UNITS:
            raise TooLarge(f"the buffers of a socket hold {MAX_BUFFERED_UNITS} ids and characters; drop one")
        if name not in self._contents and len(self._contents) >= MAX_BUFFERS:
            raise TooLarge(f"a socket has at most {MAX_BUFFERS} buffers; drop one")
        self._contents[name] = content
        return len(content)

    def keep(self, name: BufferId, content: Content, root: str) -> int:
        """Replace a buffer by a stream's prompt and answer. Returns and raises as `append`.

        Args:
            name: the name of the buffer.
            content: the prompt of the stream and its answer.
            root: the key of that prompt: prompts that continue one another share it.
        """
        before = self._contents.pop(name, None)
        try:
            size = self.append(name, content)
        except TooLarge:
            if before is not None:
                self._contents[name] = before
            raise
        self._roots[name] = root, 0
        return size

    def find_key(self, name: BufferId, beginning: Content) -> str:
        """The cache key of requests that begin with this much of a buffer.

        A buffer that was named as a whole keeps its key when it grows, since all later requests share that beginning.
        """
        root, least = self._roots.get(name, (None, 0))
        if root is not None and len(beginning) >= least:
            return root
        key = hash_content(beginning)
        if root is None and len(beginning) == len(self._contents[name]):
            self._roots[name] = key, len(beginning)
        return key

    def drop(self, name: BufferId) -> None:
        """Forget a buffer. Raises: NotFound."""
        if self._contents.pop(name, None) is None:
            raise _unknown(name)
        self._roots.pop(name, None)

    def read(self, name: BufferId, upto: int | None = None) -> Content:
        """The first `upto` ids or characters; None = all.

        Raises:
            NotFound: there is no such buffer.
            BadRequest: the buffer has fewer.
        """
        content = self._contents.get(name)
        if content is None:
            raise _unknown(name)
        if upto is not None and upto > len(content):
            raise BadRequest(f"prompt.upto: the buffer has only {len(content)}")
        return content if upto is None else content[:upto]


def join_contents(first: Content, more: Content) -> Content:
    """Both contents as one; an empty one fits either kind.

    Raises:
        BadRequest: one is text and the other token ids.
    """
    if not first or not more:
        return first or more
    if isinstance(first, str) and isinstance(more, str):
        return first + more
    if isinstance(first, tuple) and isinstance(more, tuple):
        return first + more
    raise BadRequest("append: a buffer has either token ids or text")


def hash_content(content: Content) -> str:
    """A key of the content, which is equal on every socket and gateway."""
    # Do not use `hash`, which differs between processes: providers find a cached prefix by this key.
    return hashlib.sha256(encode(content)).hexdigest()[:32]


def _unknown(name: BufferId) -> NotFound:
    return NotFound(f"there is no buffer {str(name)[:64]!r} on this socket: send BUFFER first")
