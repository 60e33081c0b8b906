"""Failure -> wire: the record `Error`, and the tree of exceptions that it is made from.

    TgError                type               HTTP  retry  meaning
    ├── BadRequest         bad-request        400   no     the request is wrong and names the field
    │   └── ContextLengthExceeded                 400   no     the prompt is longer than the model's context
    ├── Unauthorized       unauthorized       401   no     no token, or one that is not known
    ├── AccessDenied       access-denied      403   no     the token is known, but not permitted to ask this
    ├── NotFound           not-found          404   no     unknown flow, service, model or template
    ├── Timeout            timeout            504   yes    a time limit passed: first token, idle, total or deadline
    ├── TooLarge           too-large          413   no     a body or record over its limit
    ├── ContentFilter      content-filter     422   no     the provider refused to answer
    ├── RateLimited        rate-limited       429   yes    the provider's or our own limit; see retry_after
    ├── Cancelled          cancelled          499   no     the requestor disconnected
    ├── Internal           internal           500   no     a defect of Tokengrid; details are in the log
    ├── ProviderAuth       provider-auth      502   no     the provider rejected the processor's own credentials
    ├── ProtocolError      protocol           502   no     the provider sent malformed data
    │   └── SchemaViolation  schema-violation 502  yes  the model's answer does not satisfy the request's schema
    ├── IncompleteStream   incomplete-stream  502   yes    the provider's stream ended without its terminal marker
    ├── Unavailable        unavailable        503   yes    no live processor serves this, or the provider is down
    ├── SlowConsumer       slow-consumer      503   no     the reader did not keep up and its bounded buffer is full
    ├── BusError           bus                503   yes    the bus lost or rejected a message
    └── PeerError          llm-error          502   no     an error of a plain peer, in its own words

The set is closed: every failure reaches a client as one of these. Messages are our own sentences, never
`str(exception)` of another library, which may contain URLs, headers and keys.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec


class Error(msgspec.Struct, frozen=True):
    """An error on the wire. `type` is one of the table above; `retry_after` is in seconds.

    `clock` belongs to a `Timeout`, `tokens` and `maximum` to a `ContextLengthExceeded`. Unknown values are left out, as
    older peers never send these fields.
    """

    type: str | None = None
    message: str | None = None
    retry_after: float | None = None
    clock: str | msgspec.UnsetType = msgspec.UNSET
    tokens: int | msgspec.UnsetType = msgspec.UNSET
    maximum: int | msgspec.UnsetType = msgspec.UNSET


class TgError(Exception):
    """The base class of all our errors.

    Attributes:
        type: its name on the wire.
        status: the HTTP status of a failure before the first byte.
        retryable: whether the same request may succeed later.
        retry_after: seconds to wait before a retry; None = not known.
        option: the configuration keys that caused the error; never sent.
        details: status, code and request id of a provider's refusal, for the log alone; never sent.
        told: names of further attributes that the record carries if they are known.
    """

    type: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    told: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.option: tuple[str, ...] = ()
        self.details: dict[str, str | int] = {}

    # Subclasses have arguments of their own. The decorator `override` is not in this package's dependencies.
    def __reduce__(self) -> tuple[Any, ...]:  # type: ignore[explicit-override]
        return _restore, (type(self), self.args, vars(self))

    def at(self, *option: str) -> Self:
        """The same error, with these keys in front of its `option`."""
        self.option = (*option, *self.option)
        return self

    @property
    def record(self) -> Error:
        """This error's wire record."""
        known = {name: value for name in self.told if (value := getattr(self, name)) is not None}
        return Error(type=self.type, message=self.message, retry_after=self.retry_after, **known)

    @staticmethod
    def of(error: Error) -> "TgError":
        """The exception for a wire record; an unknown type (a plain peer's) becomes `PeerError`."""
        kind = _BY_TYPE.get(error.type or "", PeerError)
        made = kind(error.message or "no message was given", retry_after=error.retry_after)
        for name in kind.told:
            setattr(made, name, getattr(error, name) or None)
        return made


def _restore(kind: type[TgError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> TgError:
    """An error that was pickled for another process."""
    error = kind.__new__(kind, *arguments)
    vars(error).update(attributes)
    return error


class BadRequest(TgError):
    """The request is wrong; the message names the field and what to do."""

    type = "bad-request"
    status = 400

    @classmethod
    def refuse(cls, faults: Mapping[str, object]) -> None:
        """Raise the first of these sentences whose condition holds."""
        for sentence, found in faults.items():
            if found:
                raise cls(sentence)


_SHORTEN = "Please reduce the length of the messages."


class ContextLengthExceeded(BadRequest):
    """The prompt, or the prompt with the most tokens that the answer may have, is longer than the model's context.

    Attributes:
        tokens: tokens of the prompt; None = not known.
        maximum: the maximum of the model's context; None = not known.
    """

    type = "context-length-exceeded"
    told = ("tokens", "maximum")
    tokens: int | None = None
    maximum: int | None = None

    @classmethod
    def of_counts(cls, tokens: int | None, maximum: int | None, advice: str = _SHORTEN) -> Self:
        """The error in words that programs recognise, whatever the provider: OpenAI's, and "prompt is too long"."""
        limit = "This model's maximum context length is " + ("exceeded" if maximum is None else f"{maximum} tokens")
        length = (
            "The prompt is too long." if tokens is None else f"However, the prompt is too long: it has {tokens} tokens."
        )
        made = cls(f"{limit}. {length} {advice}")
        made.tokens, made.maximum = tokens, maximum
        return made

    def phrase(self, template: str) -> str:
        """A protocol's own sentence, with `{tokens}` and `{maximum}` filled in; if they are not known, our message."""
        if self.tokens is None or self.maximum is None:
            return self.message
        return template.format(tokens=self.tokens, maximum=self.maximum)


class Unauthorized(TgError):
    """No bearer token, or one that is not known."""

    type = "unauthorized"
    status = 401


class AccessDenied(TgError):
    """The token is known, but not permitted to ask this. TrustGraph uses the same type."""

    type = "access-denied"
    status = 403


class NotFound(TgError):
    """An unknown flow, service, model or template."""

    type = "not-found"
    status = 404


class Timeout(TgError):
    """A time limit passed.

    Attributes:
        clock: which of the clocks of an answer it was: "first_token", "idle" or "total"; None = none of them, or not
            known.
    """

    type = "timeout"
    status = 504
    retryable = True
    told = ("clock",)
    clock: str | None = None


class TooLarge(TgError):
    """A body or record over its limit."""

    type = "too-large"
    status = 413


class ContentFilter(TgError):
    """The provider refused to answer."""

    type = "content-filter"
    status = 422


class RateLimited(TgError):
    """Too many requests; `retry_after` says when to come back, where known."""

    type = "rate-limited"
    status = 429
    retryable = True


class Cancelled(TgError):
    """The requestor disconnected before the end."""

    type = "cancelled"
    status = 499


class Internal(TgError):
    """A defect of Tokengrid."""


class ProviderAuth(TgError):
    """The provider rejected the processor's own credentials: an operator must act, not the caller."""

    type = "provider-auth"
    status = 502


class ProtocolError(TgError):
    """The provider sent malformed data."""

    type = "protocol"
    status = 502


class SchemaViolation(ProtocolError):
    """The model's answer violates the request's JSON schema, although its provider announces schema support."""

    type = "schema-violation"
    retryable = True


class IncompleteStream(TgError):
    """The provider's stream ended without its terminal marker."""

    type = "incomplete-stream"
    status = 502
    retryable = True


class Unavailable(TgError):
    """No live processor serves this, or the provider is down."""

    type = "unavailable"
    status = 503
    retryable = True


class SlowConsumer(TgError):
    """The reader of a stream did not keep up and its bounded buffer is full."""

    type = "slow-consumer"
    status = 503


class BusError(TgError):
    """The bus lost or rejected a message."""

    type = "bus"
    status = 503
    retryable = True


class PeerError(TgError):
    """An error of a plain peer whose type is not in our closed set, for example TrustGraph's `llm-error`."""

    type = "llm-error"
    status = 502


_BY_TYPE: dict[str, type[TgError]] = {
    kind.type: kind
    for kind in (*TgError.__subclasses__(), *BadRequest.__subclasses__(), *ProtocolError.__subclasses__())
}
