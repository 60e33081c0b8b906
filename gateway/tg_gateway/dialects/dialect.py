"""Door <-> records: what every dialect can do, so that HTTP and WebSocket carry all of them alike."""

from typing import Protocol, TypeVar

from tg_schema import TgError
from tg_schema.response import Response

Asked_co = TypeVar("Asked_co", covariant=True)
Told_contra = TypeVar("Told_contra", bound=Response, contravariant=True)


class Dialect(Protocol[Asked_co, Told_contra]):
    """How one service is asked and answered in somebody's JSON: pure functions of values."""

    def parse(self, body: bytes) -> Asked_co:
        """The request that a body asks for.

        Raises:
            BadRequest: the body is not what the service takes; the message names what is wrong.
        """

    def event(self, record: Told_contra) -> bytes:
        """The JSON of one record of a stream, or of the whole answer as a single record."""

    def failure(self, error: TgError) -> bytes:
        """The JSON of a stream's last event, when it failed after its first byte."""

    def refusal(self, error: TgError) -> bytes:
        """The JSON of an HTTP response with the error's own status."""
