"""A provider's failure -> our error: one table for HTTP statuses, one for the error codes in a body or an event.

Statuses and codes are those of the providers' public API references; compatible servers follow them.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tg_schema import TgError
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    ContextLengthExceeded,
    NotFound,
    ProtocolError,
    ProviderAuth,
    RateLimited,
    Timeout,
    TooLarge,
    Unavailable,
)

MAX_RETRY_AFTER_SECONDS = 3600.0
"""Upper limit of `retry_after`, in seconds."""

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "mistral-correlation-id")
"""Headers in which providers name a request: OpenAI and many others, Anthropic, Azure, AWS, Mistral."""
_CODE = "x-amzn-errortype"
"""The header in which AWS names an error; a colon and an address may follow."""
_WORD = re.compile(r"[\w.:-]{1,100}", re.ASCII)
"""A code or an id. Anything else may be a sentence with a prompt or a key in it."""

_AUTH = (ProviderAuth, "the provider refused the processor's key; its operator must check the key and what it may do")
_QUOTA = (ProviderAuth, "the processor's account at the provider has no credit left; its operator must top it up")
_LIMIT = (RateLimited, "the provider's rate limit is reached; ask again later")
_UNKNOWN = (NotFound, "the provider does not know the model or the path; check upstream_model and base_url")
_REFUSED = (
    BadRequest,
    "the provider refused the request; check the sampling fields, the schema and the model",
)
_FIELD = (BadRequest, "the model refuses one of the sampling fields; leave out those that it lacks")
_LENGTH = (ContextLengthExceeded, ContextLengthExceeded.of_counts(None, None).message)
_FILTER = (ContentFilter, "the provider's content filter refused to answer this prompt")
_LARGE = (TooLarge, "the request is larger than the provider takes; send a shorter prompt")
_DOWN = (Unavailable, "the provider is failing or overloaded; ask again later")

_BY_STATUS: dict[int, tuple[type[TgError], str]] = {
    401: _AUTH,
    402: _QUOTA,
    403: _AUTH,
    404: _UNKNOWN,
    408: (Timeout, "the provider gave up waiting"),
    413: _LARGE,
    429: _LIMIT,
}

_BY_CODE: dict[str, tuple[type[TgError], str]] = {
    "insufficient_quota": _QUOTA,
    "billing_hard_limit_reached": _QUOTA,
    "invalid_api_key": _AUTH,
    "model_not_found": _UNKNOWN,
    "context_length_exceeded": _LENGTH,
    "exceed_context_size_error": _LENGTH,
    "unsupported_parameter": _FIELD,
    "unsupported_value": _FIELD,
    "content_filter": _FILTER,
    "content_policy_violation": _FILTER,
    "rate_limit_exceeded": _LIMIT,
    "rate_limit_error": _LIMIT,
    "invalid_request_error": _REFUSED,
    "authentication_error": _AUTH,
    "request_too_large": _LARGE,
    "permission_error": _AUTH,
    "billing_error": _QUOTA,
    "not_found_error": _UNKNOWN,
    "overloaded_error": _DOWN,
    "api_error": _DOWN,
    "timeout_error": _DOWN,
    "AccessDeniedException": _AUTH,
    "ExpiredTokenException": _AUTH,
    "UnrecognizedClientException": _AUTH,
    "ResourceNotFoundException": _UNKNOWN,
    "ValidationException": _REFUSED,
    "ThrottlingException": _LIMIT,
    "ServiceQuotaExceededException": _LIMIT,
    "ModelNotReadyException": _DOWN,
    "ERROR_TOXIC": _FILTER,
    "invalid_model": _UNKNOWN,
    "rate_limited": _LIMIT,
    "service_tier_capacity_exceeded": _LIMIT,
    "Input validation error": _REFUSED,
    "Model is overloaded": _LIMIT,
    "validation": _REFUSED,
    "overloaded": _LIMIT,
    "generation": _DOWN,
    "incomplete_generation": _DOWN,
    "UNAUTHENTICATED": _AUTH,
    "API_KEY_INVALID": _AUTH,
    "PERMISSION_DENIED": _AUTH,
    "NOT_FOUND": _UNKNOWN,
    "RESOURCE_EXHAUSTED": _LIMIT,
    "UNAVAILABLE": _DOWN,
    "INTERNAL": _DOWN,
}


_OVERFLOW_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse a prompt that is too long."""
_TOKENS, _MAXIMUM, _WORDS = r"(?P<tokens>\d{1,9})", r"(?P<maximum>\d{1,9})", r"[^\"]{0,80}?"
_OVERFLOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # used by Anthropic, also behind Bedrock and Vertex AI
        rf"prompt is too long: {_TOKENS} tokens (?:>|\\u003e) {_MAXIMUM} maximum",
        rf"exceed context limit: \d+ \+ \d+ (?:>|\\u003e) {_MAXIMUM}",
        # Mistral
        rf"prompt contains {_TOKENS} tokens{_WORDS}too large for model with {_MAXIMUM} maximum context length",
        # OpenAI, Azure, vLLM
        rf"maximum context length (?:is|of) {_MAXIMUM} tokens{_WORDS}(?:resulted in|requested|total of|has) {_TOKENS}",
        rf"maximum context length (?:is|of) {_MAXIMUM} tokens",
        rf"exceed the configured limit of {_MAXIMUM} tokens{_WORDS}resulted in {_TOKENS}",
        rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_MAXIMUM}",
        # Gemini
        rf"token count \({_TOKENS}\) exceeds the maximum number of tokens allowed \({_MAXIMUM}\)",
        # Cohere
        rf"tokens in the prompt cannot exceed {_MAXIMUM} - received {_TOKENS}",
        # TGI
        rf"`inputs` {_WORDS}must {_WORDS}{_MAXIMUM}(?: tokens)?\. Given: {_TOKENS}",
        # llama.cpp's server, and Ollama, which has it inside
        rf"request \({_TOKENS} tokens\) exceeds the available context size \({_MAXIMUM} tokens\)",
        # SGLang
        rf"\({_TOKENS} tokens\) {_WORDS}(?:context|allowed) length \({_MAXIMUM} tokens\)",
        # LM Studio
        rf"first {_TOKENS} tokens {_WORDS}context length of only {_MAXIMUM} tokens",
        # Models of Bedrock
        rf"max input tokens: {_MAXIMUM}, request input token count: {_TOKENS}",
        # Several providers send no numbers.
        r"context_length_exceeded|prompt is too long|too long for requested model|too many (?:input )?tokens: ",
        r"exceeds (?:the )?(?:context (?:window|length)|available context size|maximum (?:number of tokens|context))",
        r"greater than the context length",
    )
)
"""Servers' messages about a prompt that is longer than their model's context."""


def find_overflow(text: str) -> ContextLengthExceeded | None:
    """The error for a server's sentence about a prompt that is too long; None if it is about something else."""
    found = next((match for pattern in _OVERFLOWS if (match := pattern.search(text))), None)
    if found is None:
        return None
    counts = {name: int(count) for name, count in found.groupdict().items()}
    tokens, maximum = counts.get("tokens"), counts.get("maximum")
    # If the prompt fits and only the answer does not, the prompt's length would explain nothing.
    return ContextLengthExceeded.of_counts(None if maximum and (tokens or 0) <= maximum else tokens, maximum)


def status_error(
    status: int, code: str = "", wait: float | None = None, advice: str = "", text: str = "", *, request_id: str = ""
) -> TgError:
    """The error for a status that is not 2xx; a known error code takes precedence over the status.

    Exceptions are codes that are less precise than the status, or that report a client's mistake as an outage.

    Args:
        status: the answer's.
        code: the provider's own code for the failure; "" = none.
        wait: seconds before a retry.
        advice: a clause that is added to the error's message.
        text: the answer's text, which is searched for the lengths of a prompt that is too long.
        request_id: the provider's id for the request (`find_request_id`).
    """
    overflow = find_overflow(text) if status in _OVERFLOW_STATUSES else None
    known = _BY_CODE.get(code) if status < 500 and code != "invalid_request_error" else None
    # Some servers send "api_error" for a malformed request too; as an outage it would be retried without success.
    if status == 400 and known is _DOWN:
        known = None
    kind, sentence = known or _BY_STATUS.get(status) or _by_class(status)
    error = overflow or kind(f"{sentence}{advice and '; '}{advice} (status {status})", retry_after=wait)
    error.details = {"status": status, **_words(code=code, upstream_request=request_id)}
    return error


def event_error(code: str | int | None, name: str | None = None, text: Any = None) -> TgError:
    """The error for an `error` event in a stream that began with status 200.

    Args:
        code: the event's own code: a name or a status.
        name: the error's name, if the code is only a status.
        text: its message, as for `status_error`; servers send anything there.
    """
    if overflow := find_overflow(str(text)):
        return overflow
    # Compatible servers send the HTTP status as a number or as a string.
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, int) and 400 <= code < 600:
        return status_error(code, name or "", None)
    kind, sentence = _BY_CODE.get(str(code)) or _BY_CODE.get(name or "") or _DOWN
    error = kind(sentence)
    error.details = _words(code=str(code or name or ""))
    return error


def find_request_id(headers: Mapping[str, str]) -> str:
    """The id that the provider's support team needs; "" = there is none."""
    return next((found for name in _REQUEST_IDS if (found := headers.get(name))), "")


def find_code(headers: Mapping[str, str]) -> str:
    """The code that a provider has put into a header of its error; "" = there is none."""
    return headers.get(_CODE, "").partition(":")[0]


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait by the headers `retry-after-ms` or `Retry-After` (seconds or an HTTP date).

    None if they are absent or malformed, otherwise from 0 to `MAX_RETRY_AFTER_SECONDS`.
    """
    millis = _number(headers.get("retry-after-ms"))
    header = headers.get("retry-after")
    seconds = _number(header) if millis is None else millis / 1000
    if seconds is None and header is not None:
        seconds = _until(header, now or datetime.now(UTC))
    return None if seconds is None else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _by_class(status: int) -> tuple[type[TgError], str]:
    if status >= 500:
        return _DOWN
    if status >= 400:
        return _REFUSED
    return ProtocolError, "the provider answered with a redirect; set base_url to its final address"


def _words(**details: str) -> dict[str, str | int]:
    return {name: text for name, text in details.items() if text in _BY_CODE or _WORD.fullmatch(text)}


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
