"""boto3 -> limits on an answer's headers, and on its body unless it is a stream."""

from collections.abc import Iterator
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from botocore.awsrequest import AWSResponse

MAX_INTERIM_RESPONSES = 16
"""Maximum number of interim responses (1xx) before an answer; `http.client` itself skips any number."""

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a list of models or of an error's body."""

_STREAM = "application/vnd.amazon.eventstream"


class EndlessError(ValueError):
    """The server exceeds a limit."""


class BoundedResponse(HTTPResponse):
    """Python's own response class, with a limit on interim responses."""

    _statuses = 0

    @override
    def _read_status(self) -> tuple[str, int, str]:  # type: ignore[misc]  # of the standard library, without stubs
        self._statuses += 1
        # One more, since the last status is the answer's own.
        if self._statuses > MAX_INTERIM_RESPONSES + 1:
            raise EndlessError
        status: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
        return status


def bound_body(response: "AWSResponse") -> "AWSResponse":
    """Limit a body that is not a stream to `MAX_BODY_BYTES`, because boto3 reads it at once."""
    failed = response.status_code >= 300
    if failed or response.headers.get("content-type", "").partition(";")[0].strip() != _STREAM:
        response.raw = _BoundedBody(response.raw, needed=not failed)
    return response


class _BoundedBody:
    """The part of a body's interface that boto3 uses. Unless it is `needed`, a body that is too long reads as empty."""

    def __init__(self, raw: Any, *, needed: bool) -> None:
        self._raw = raw
        self._needed = needed

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        """Yield the parts of the body. Raises EndlessError."""
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
