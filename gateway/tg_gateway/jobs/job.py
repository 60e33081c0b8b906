"""Ask -> message on the bus -> ask: a response that another process makes. It needs no dialect, and no key's token."""

from typing import Self

import msgspec

from tg_base.protocol import EncodedRequest
from tg_base.telemetry import trace
from tg_gateway.dialects import Answer, Ask, Background, Catalogue, KeptAnswers
from tg_gateway.jobs.record_writer import RecordWriter
from tg_gateway.telemetry import AccessLogEntry
from tg_schema import TEXT_COMPLETION, decode
from tg_schema.codec import encode_request


class QueuedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message of a response: enough for any process to send the same request.

    Attributes:
        name: the name of the answer's log.
        until: when it expires, by the clock that all requestors share.
        owner: whose it is, as `JobLogs.owner`.
        flow: the flow that is asked.
        service: its service.
        request: the record.
        key: the name of the API key that asked.
        entry: the id of the request.
        model: the route or model for which its name stood when it came; None = it named none.
        waits: whether it waits for capacity, and a model may be asked for it again.
        deadline: as of its `Ask`.
        keeps_parts: as of its `Background`.
        keeps_whole: as of its `Background`.
        door: the name of the door by which it came; None = by none.
        traceparent: its trace context; None = it has none.
    """

    name: str
    until: float
    owner: str
    flow: str
    service: str
    request: msgspec.Raw
    key: str | None
    entry: str
    model: str | None = None
    waits: bool = False
    deadline: float | None = None
    keeps_parts: bool = False
    keeps_whole: bool = True
    door: str | None = None
    traceparent: str | None = None

    @classmethod
    def of(
        cls, asked: Ask, background: Background, entry: AccessLogEntry, until: float, owner: str, *, waits: bool
    ) -> Self:
        """The message of an answer for which the current span asks."""
        route, request, span = asked.route, asked.request, trace.current()
        encoded = request.body if isinstance(request, EncodedRequest) else encode_request(request)
        adapter, model = getattr(request, "adapter", None), getattr(request, "model", None) or route.model
        return cls(
            background.name,
            until,
            owner,
            route.flow,
            route.spec.name,
            msgspec.Raw(encoded),
            entry.key,
            entry.request,
            route.plan or ":".join(filter(None, (model, adapter))) or None,
            waits,
            asked.deadline,
            background.keeps_parts,
            background.keeps_whole,
            trace.find_door(),
            None if span is None else span.traceparent,
        )

    def restore(self, catalogue: Catalogue) -> tuple[Ask, Background]:
        """The ask again.

        Raises:
            NotFound: this process has no such model or service.
            BadRequest: the request is none of the service.
        """
        if self.service == TEXT_COMPLETION.name and self.model is not None:
            route = catalogue.find_again(self.model, self.flow, self.model).route
        else:
            route = catalogue.find_service(self.flow, self.service)
        record = decode(route.spec.request, self.request)
        writer = RecordWriter(route.spec.response, keeps_whole=False)
        kept = Background(self.name, b"", self.keeps_parts, _answer_nobody, keeps_whole=self.keeps_whole)
        return Ask(route, record, writer, streaming=True, deadline=self.deadline), kept

    def make_entry(self) -> AccessLogEntry:
        """Its line in the log; the current task goes on in its trace."""
        span = trace.Span.at_door(self.entry, self.traceparent, self.door)
        trace.enter(span)
        return AccessLogEntry("background", self.entry, self.traceparent, self.key, span=span)


def _answer_nobody(_: KeptAnswers) -> Answer:
    """Its client is connected to another process."""
    return Answer(b"")
