"""HTTP request -> dialect -> the service request that the gateway makes of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tg_base.protocol import Route
from tg_gateway.dialects.background import Background
from tg_gateway.dialects.batches import Store
from tg_gateway.dialects.catalogue import Catalogue
from tg_gateway.dialects.field_names import FieldNames
from tg_gateway.dialects.idempotency_key import IdempotencyKey
from tg_gateway.dialects.kept_answers import NOTHING_KEPT, Keep, KeptAnswers
from tg_gateway.dialects.kept_streams import NO_STREAMS, KeptStreams
from tg_gateway.dialects.live_figures import NO_FIGURES, LiveFigures
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError


@dataclass(slots=True)
class Call:
    """One HTTP request, as its dialect reads it.

    Attributes:
        operation: the mount's operation; "" if no mount has this path and method.
        catalogue: the services and models that can be asked.
        headers: the request's headers; names in any case.
        path: the variables of the mount's path.
        query: the parameters after `?`; of several with one name, the first.
        request_id: the client's `X-Request-Id`, or ours; every answer has it as a header.
        body: the body; empty until it has been read.
        route: the service. The dialect sets it as soon as it is known, so that the log and the metrics can name it even
            if the request is refused. A request that becomes an `Ask` need not set it.
        stores: whether answers may be kept for the request's key.
        attaches: whether requests of its key without an `Idempotency-Key` may get answers of equal ones.
        digest: the result of `digest_request`, if requests that repeat this one get its answer; "" otherwise.
        sees: the only key whose usage and streams the client may see; None = all keys.
        kept: the answers that are kept for the request's key; only an awaitable that `parse` returns uses it.
        live: what the gateway does now; also for an awaitable of it.
        streams: reads streams that are kept; for such an awaitable too.
        batches: the files and batches of the request's key; for such an awaitable too.
    """

    operation: str
    catalogue: Catalogue
    headers: Mapping[str, str]
    path: Mapping[str, str]
    query: Mapping[str, str]
    request_id: str
    body: bytes = b""
    route: Route[Any, Any] | None = None
    stores: bool = True
    attaches: bool = False
    digest: str = ""
    sees: str | None = None
    kept: KeptAnswers = NOTHING_KEPT
    live: LiveFigures = NO_FIGURES
    streams: KeptStreams = NO_STREAMS
    batches: Store = field(init=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """Several completions that make up one client's request. They run concurrently as far as there is capacity.

    The writer gets all records as they come, as if they were of one answer. The `index` of request k's records is
    raised by k times `answers`, and the last record of all ends the answer. If one request fails, all fail. If they are
    `independent`, the writer gets a `FailedRequest` in place of its last record, and the others continue.

    Attributes:
        requests: at least one.
        answers: how many answers each of them has.
        independent: whether the other requests continue when one fails.
        uniform: whether one model must answer all, since the parts of the answer are compared or used together.
    """

    requests: tuple[Any, ...]
    answers: int = 1
    independent: bool = False
    uniform: bool = False


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """One of a batch's independent requests has failed, and sends nothing more.

    Attributes:
        index: the index of its first answer.
        error: why it failed.
        last: whether all other requests of the batch had ended before.
    """

    index: int
    error: TgError
    last: bool


@dataclass(frozen=True, slots=True)
class Keeping:
    """How the answer to a request is kept.

    Attributes:
        period: as for `KeptStreams.keep`, if the client sets it; None = as the flow says, if there is capacity.
        key: the same for all requests that share one answer; None = the request shares none.
        attach: as for `KeptStreams.keep`.
        announce: on a WebSocket, the frames that tell the stream's id at once to a client with a `period`.
        on_whole: as for `KeptStreams.share`.
    """

    period: str | None
    key: IdempotencyKey | None = None
    attach: Callable[[str], Writer[Any]] | None = None
    announce: Callable[[str], bytes] | None = None
    on_whole: Callable[[], Awaitable[None]] | None = None

    @property
    def demanded(self) -> bool:
        """Whether the client itself asks to keep the answer. If not, it gets even an answer that cannot be kept."""
        return self.period is not None or (self.key is not None and bool(self.key.field))


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a service.

    Attributes:
        route: the service.
        request: its request record, or a `Batch` of them.
        writer: writes the answer; made for this request alone.
        streaming: whether the answer's bytes leave as they are written, or as one body with its length.
        keep: stores the answer before its last bytes leave (over HTTP only); if that fails, so does
            the request, unless that is optional.
        background: set if the answer is made apart from the connection; `streaming` and `keep` are then ignored.
        deadline: seconds after which an incomplete answer is stopped; None = the model's own limits. Like
            `on_accepted`, it is for single requests only.
        on_accepted: called once if a processor works on the request and has not answered yet.
        on_opening: called once before `on_accepted`, if the processor opens the model for the request.
        fields: the client's names of the record's fields, for errors by processors; None = the same names.
        keeping: on a WebSocket, how to keep the answer; None = it is not kept. Over HTTP, headers say it.
        headers: further headers of a good answer over HTTP, which depend on the request alone.
    """

    route: Route[Any, Any]
    request: Any
    writer: Writer[Any]
    streaming: bool
    keep: Keep | None = None
    background: Background | None = None
    deadline: float | None = None
    on_accepted: Callable[[], None] | None = None
    on_opening: Callable[[], None] | None = None
    fields: FieldNames | None = None
    keeping: Keeping | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def unpack(self) -> Self:
        """The same request; a batch of one request becomes that request."""
        batch = self.request
        single = isinstance(batch, Batch) and len(batch.requests) == 1 and not batch.independent
        return replace(self, request=batch.requests[0]) if single else self
