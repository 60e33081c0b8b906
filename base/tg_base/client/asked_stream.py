"""Caller -> requestor: a stream with its request, which is kept for as many attempts as it takes."""

import asyncio
from typing import Any, NamedTuple

import msgspec
from typing_extensions import override

from tg_base.client.attempt import Attempt
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.response_stream import ResponseStream
from tg_base.client.route_plans import RouteRun
from tg_base.protocol import EncodedRequest
from tg_base.telemetry import Attribute, end_span, find_error, span_names
from tg_schema import TEXT_COMPLETION, TgError, decode, encode
from tg_schema.codec import encode_request
from tg_schema.errors import BadRequest, Cancelled
from tg_schema.features import CONTINUATION, Feature
from tg_schema.prompt_size import measure_text
from tg_schema.usage_record import BILLED_OPERATIONS


class Terms(NamedTuple):
    """How a caller asks, as `Requestor.stream` explains."""

    timeout: float
    total: float | None = None
    bounded: bool = False
    permit: BeginPermit | None = None
    kept: bool = False


class _Text(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A record of an answer that has nothing but text."""

    response: str | None = None
    model: str | None = None
    error: None = None


class AskedStream(ResponseStream[Any]):
    """A requested stream, with its encoded request.

    Args:
        attempt: the first one.
        request: the request's record, unchanged or encoded.
        terms: how its caller asks.
        needed: the features that the request needs.
        continued: whether another processor can continue after the text of one that has died.
        run: the request's way through a route; None = one model is asked.

    Attributes:
        terms, run: as given.
        body: the encoded request of the current attempt. It is dropped at the first record of an answer that nobody can
            continue.
        texts: the texts of earlier attempts; the current attempt continues after them.
        deaths: how many processors of the current model have lost the request.
        shadow: reads and drops the answer of the request's copy; None = there is no copy.
        silenced: how many processors fell silent while they had the request.
        sending: sends the body, if a processor has asked for it in parts.
        cache_key: the cache key of the request; None = it has none.
    """

    __slots__ = ("_request", "body", "cache_key", "deaths", "run", "sending", "shadow", "silenced", "terms", "texts")

    def __init__(
        self,
        attempt: Attempt,
        request: Any,
        terms: Terms,
        *,
        needed: frozenset[Feature],
        continued: bool = False,
        run: RouteRun | None = None,
    ) -> None:
        operation = getattr(request, "operation", None) or "completion"
        prompt = 0
        if attempt.route.spec is TEXT_COMPLETION and operation in BILLED_OPERATIONS:
            attempt.operation, prompt = operation, _measure_prompt(request, needed)
            # A kept answer is not continued elsewhere: its log has only one attempt, and that attempt's frames.
            fits = operation == "completion" and not (terms.kept or terms.permit or CONTINUATION in needed)
            attempt.sent = [] if continued and fits else None
        super().__init__(attempt, terms.timeout, total=terms.total, whole=not getattr(request, "streaming", True))
        self._request = self.body = request.body if isinstance(request, EncodedRequest) else encode_request(request)
        self.request_bytes = len(self.body)
        attempt.prompt_bytes = prompt or self.request_bytes
        self.terms, self.run = terms, run
        self.texts: tuple[str, ...] = ()
        self.deaths = self.silenced = 0
        self.sending: asyncio.Task[Any] | None = None
        self.shadow: asyncio.Task[Any] | None = None
        self.cache_key: str | None = getattr(request, "cache_key", None)

    @property
    def begun(self) -> bool:
        """Whether no other processor may be asked, because one has answered, or may have begun under a permit."""
        permit = self.terms.permit
        return self.attempt.answered or bool(self.texts) or (permit is not None and permit.begun)

    @override
    def accept(self, *, opening: bool = False) -> None:
        if (permit := self.terms.permit) is not None:
            permit.works = permit.begun
        super().accept(opening=opening)

    def begin_attempt(self, asked_at: float) -> None:
        """Begin another attempt; `asked_at` is now, by the requestor's clock."""
        before, self.attempt = self.attempt, self.attempt.follow(asked_at, self._loop.time())
        before.place_at(None)
        if self.terms.permit is not None:
            self.terms.permit.granted = False

    def forget_request(self) -> None:
        """Drop the request, since nobody else will be asked: a prompt may be long, and an answer may take minutes."""
        self.body = self._request = b""

    def go_on(self, error: TgError) -> bool:
        """Prepare an attempt that continues the answer where `error` ended the last one; False = none can.

        The next processor decides whether it can continue this answer. If it refuses, or none begins, the stream ends
        with `error`.
        """
        attempt = self.attempt
        if attempt.sent is None or self.failed:
            return False
        try:
            records = decode(list[_Text], b"[%b]" % b",".join(attempt.sent))
        except BadRequest:
            return False
        if text := "".join([record.response or "" for record in records]):
            self.texts += (text,)
            attempt.prompt_bytes += len(text.encode("utf-8", "replace"))
        if self.texts:
            self.death = error
            self.body = b"".join((self._request[:-1], b',"continuation":', encode(self.texts), b"}"))
        return True

    def end_span(self, error: BaseException | None) -> None:
        """Record the span of the request, for a caller that leaves with this error."""
        attempt = self.attempt
        attributes: dict[str, Attribute] = {
            span_names.FLOW: attempt.route.flow,
            span_names.STREAM_ID: self.id,
            span_names.PROCESSOR: attempt.processor,
            span_names.ATTEMPT: attempt.key.attempt,
        }
        left = Cancelled.type if error is None and not self.complete else ""
        end_span(attempt.span, f"ask {attempt.route.spec.name}", "client", attributes, left or find_error(error))


def _measure_prompt(request: Any, needed: frozenset[Feature]) -> int:
    """Bytes of the prompt's text; 0 = it is a conversation, which would take too long."""
    if isinstance(request, EncodedRequest):
        return request.text_bytes
    if "images" in needed:
        # The JSON of images says nothing about their size as a prompt.
        return measure_text(request)
    if request.messages or request.tools or request.prompt_ids or request.texts or request.id_lists:
        return 0
    return len(request.prompt or "") + len(request.system or "")
