"""Envoy's messages -> picker and back: one HTTP request, where it goes or why it is refused, and its progress."""

from typing import Protocol

from msgspec import Struct

from tg_picker.core import InstanceUsage

OPAQUE_KINDS = ("multipart/", "audio/", "image/", "video/")


class Asked(Struct, frozen=True):
    """A request that waits for its endpoint.

    Attributes:
        headers: by lower-case name, Envoy's own (":path") among them.
        body: all of it; None = it has none, or Envoy does not send it.
        subset: the addresses to choose from, as the data plane says; None = no limit.
        is_unread: whether Envoy sends nothing of the answer's body, so that nobody will see its first token.
    """

    headers: dict[str, str]
    body: bytes | None = None
    subset: frozenset[str] | None = None
    is_unread: bool = False

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.headers.get(":path", "").partition("?")[0]

    @property
    def is_opaque(self) -> bool:
        """Whether the content type says that the body is no JSON, such as a form with a recording."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind.startswith(OPAQUE_KINDS) or kind == "application/octet-stream"

    def header(self, *names: str) -> str:
        """The first of these headers that is set; "" if none is."""
        return next(filter(None, map(self.headers.get, names)), "")


class Course(Protocol):
    """Follows the progress of a directed request. Only the first call of each kind counts."""

    def served(self, address: str) -> None:
        """The data plane says which endpoint it used: the picked one, or a fallback."""

    def respond(self, status: int, load: str) -> None:
        """The endpoint answered with this status; `load` is its ORCA header, "" if it sent none."""

    def begin(self) -> None:
        """The first piece of the answer's body came; or its headers, if Envoy does not send the body."""

    def end(self, usage: InstanceUsage | None) -> None:
        """The request is over, however that came about."""


class Directed(Struct, frozen=True):
    """Where a request goes.

    Attributes:
        addresses: "host:port", best first; at least one.
        course: is notified of the request's progress; `end` must be called.
        body: replaces the request's body; None = unchanged.
        is_list: whether Envoy's cluster takes all addresses as one list. Otherwise each fallback has a header of its
            own.
    """

    addresses: tuple[str, ...]
    course: Course
    body: bytes | None = None
    is_list: bool = True


class Refused(Struct, frozen=True):
    """Why no server gets the request.

    Attributes:
        status: the status of the answer: 400, 404, 413, 429 or 503.
        reason: the published word for it, for the header and for metrics.
        message: a sentence that says what to do.
        retry_after: seconds; None = the same request would fail again, or nobody knows when.
    """

    status: int
    reason: str
    message: str
    retry_after: float | None = None


class Picker(Protocol):
    """Decides about requests."""

    async def decide(self, asked: Asked) -> Directed | Refused:
        """Choose an endpoint. It may wait for a place in a queue; a cancellation leaves nothing behind."""
