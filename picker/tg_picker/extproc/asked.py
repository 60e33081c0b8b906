"""Envoy's messages -> picker: one HTTP request, as far as a picker reads it."""

from msgspec import Struct

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
        """Whether the body says that it is of a kind that is no JSON, such as a form with a recording."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind.startswith(OPAQUE_KINDS) or kind == "application/octet-stream"

    def header(self, *names: str) -> str:
        """The first of these headers that is set; "" if none is."""
        for name in names:
            if value := self.headers.get(name):
                return value
        return ""
