"""boto3 -> an answer's head and its body where it is no stream: neither may be endless."""

from collections.abc import Iterator
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from botocore.awsrequest import AWSResponse

MAX_INTERIM_RESPONSES = 16
"""Interim responses (1xx) before an answer; Python's own reading passes over any number."""

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Bytes of a list of models, or of the body of an error."""

_STREAM = "application/vnd.amazon.eventstream"


class EndlessError(ValueError):
    """The other side does not come to an end."""


class BoundedResponse(HTTPResponse):
    """Python's own, which gives up on a server that only says that it goes on."""

    _statuses = 0

    @override
    def _read_status(self) -> tuple[str, int, str]:  # type: ignore[misc]  # of the standard library, without stubs
        self._statuses += 1
        if self._statuses > MAX_INTERIM_RESPONSES + 1:
            raise EndlessError
        status: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
        return status


def bound_body(response: "AWSResponse") -> "AWSResponse":
    """Let boto3, which reads a body that is no stream in one go, read `MAX_BODY_BYTES` of it at most."""
    failed = response.status_code >= 300
    if failed or response.headers.get("content-type", "").partition(";")[0].strip() != _STREAM:
        response.raw = _BoundedBody(response.raw, needed=not failed)
    return response


class _BoundedBody:
    """What boto3 needs of a body. Where it is not `needed`, one that is too long is none: the status says enough."""

    def __init__(self, raw: Any, *, needed: bool) -> None:
        self._raw = raw
        self._needed = needed

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        """The parts of the body. Raises EndlessError."""
        parts: list[bytes] = []
        left = MAX_BODY_BYTES
        for part in self._raw.stream(*arguments, **options):
            left -= len(part)
            if left < 0:
                self._raw.close()
                if self._needed:
                    raise EndlessError
                return
            parts.append(part)
        yield from parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
