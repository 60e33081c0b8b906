"""Envoy's messages <-> picker: one HTTP request, the server that it goes to or why it is refused, and its progress."""

from typing import Protocol

from msgspec import Struct

from tg_picker.core import InstanceUsage

OPAQUE_KINDS = ("multipart/", "audio/", "image/", "video/")


class Asked(Struct, frozen=True):
    """A request that waits for its endpoint.

    Attributes:
        headers: the headers by lower-case name, including Envoy's own (":path").
        body: the whole body; None = there is none, or Envoy does not send it.
        subset: the addresses to choose from, given by the data plane; None = all.
        is_unread: whether Envoy sends nothing of the answer's body, so that its first token cannot be observed.
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
        """Whether the content type says that the body is not JSON, for example a form with a recording."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind.startswith(OPAQUE_KINDS) or kind == "application/octet-stream"

    def header(self, *names: str) -> str:
        """The first of these headers that is set; "" if none is."""
        return next(filter(None, map(self.headers.get, names)), "")


class Course(Protocol):
    """Is notified of the progress of a directed request. Only the first call of each method counts."""

    def served(self, address: str) -> None:
        """The data plane used this endpoint: the picked one, or a fallback."""

    def respond(self, status: int, load: str) -> None:
        """The endpoint answered with this status. `load` is its ORCA header, "" if it sent none."""

    def begin(self) -> None:
        """The first piece of the answer's body arrived, or only the headers if Envoy does not send the body."""

    def end(self, usage: InstanceUsage | None) -> None:
        """The request is over, for whatever reason."""


class Directed(Struct, frozen=True):
    """The servers that a request may go to.

    Attributes:
        addresses: "host:port", best first; at least one.
        course: is notified of the request's progress; `end` must be called.
        body: replaces the request's body; None = unchanged.
        is_list: whether Envoy's cluster takes all addresses as one list. If not, each fallback has a header of its
            own.
    """

    addresses: tuple[str, ...]
    course: Course
    body: bytes | None = None
    is_list: bool = True


class Refused(Struct, frozen=True):
    """Why a request gets no server.

    Attributes:
        status: the status of the answer: 400, 404, 413, 429 or 503.
        reason: the published name of the reason, for the header and for metrics.
        message: a sentence that says what to do.
        retry_after: seconds; None = the same request would fail again, or it is not known when it would succeed.
    """

    status: int
    reason: str
    message: str
    retry_after: float | None = None


class Picker(Protocol):
    """Picks a server for each request."""

    async def decide(self, asked: Asked) -> Directed | Refused:
        """Choose an endpoint. This may wait in a queue; if it is cancelled, nothing is left behind."""
