"""A response that ended on a WebSocket -> the conversation of the next request that continues from it.

OpenAI's API keeps as much, without `store`: the socket's last response, as long as the socket is open.
"""

from collections.abc import Sequence

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.responses.kept_response import NOT_FOUND
from tg_gateway.dialects.responses.request_body import InputItem
from tg_gateway.dialects.responses.response_object import OutputItem
from tg_schema import decode, encode

MAX_CONVERSATION_BYTES = 1024 * 1024
"""Bytes of a conversation, as JSON, that a socket keeps; the response of a longer one is not kept."""


class LastResponse:
    """The last response of one socket. `size` is in bytes of JSON."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._id: str | None = None
        self._input: tuple[InputItem, ...] = ()
        self._output = b"[]"

    def find(self, response_id: str) -> tuple[InputItem, ...]:
        """All items of the conversation up to the end of this response.

        Raises:
            InvalidParameter: this response is not the one that is kept.
        """
        if response_id != self._id:
            raise InvalidParameter(
                f"a socket keeps its last response alone, up to {MAX_CONVERSATION_BYTES} bytes of conversation: "
                "send the earlier items in input",
                "previous_response_id",
                NOT_FOUND,
            )
        return (*self._input, *decode(tuple[InputItem, ...], self._output))

    def forget(self, response_id: str | None) -> None:
        """No request may continue from this response after one that did has failed (as Open Responses requires)."""
        if response_id is not None and response_id == self._id:
            self._clear()

    def keep(self, response_id: str, items: tuple[InputItem, ...], size: int, output: Sequence[OutputItem]) -> None:
        """Keep this response in place of the one before.

        Args:
            response_id: its id.
            items: all of its input, the conversation before it included.
            size: the size of these items.
            output: its own items.
        """
        # Keep it as JSON, since it comes back as items of an input, which have other types.
        encoded = encode(output)
        # Drop it even if the new one is too large to keep: it is no longer the last response.
        self._clear()
        if size + len(encoded) <= MAX_CONVERSATION_BYTES:
            self._id, self._input, self._output, self.size = response_id, items, encoded, size + len(encoded)
