"""Asked -> scheduler -> decision: from a request's body and headers to the model server that runs it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from time import perf_counter

import structlog
from msgspec.structs import replace

from tg_picker.core import (
    Endpoint,
    InstanceRequest,
    Objective,
    Pick,
    Rejection,
)
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.model_request import ModelRequest, read_model_request, rename_model
from tg_picker.extproc.placement_course import LoadReader, PlacementCourse
from tg_picker.pools import Destination, Dispatcher, PoolView, Slo, find_goal
from tg_picker.status import PoolBoard, RequestFacts
from tg_schema.errors import BadRequest

OBJECTIVE_HEADERS = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FLOW_HEADERS = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
FIRST_TOKEN_HEADERS = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
OUTPUT_TOKEN_HEADERS = ("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms")
DEFAULT_FLOW = "default-flow"
MAX_LOGGED = 100
"""Characters of a client's text in the log or in an error."""

FindEligible = Callable[[Sequence[Endpoint]], Sequence[Endpoint]]
AdapterLoad = Callable[[Endpoint, str], Awaitable[None]]
"""Returns once a server has an adapter, or has refused to load it. It does not fail."""

log = structlog.get_logger()

_SENTENCES = {
    "no-endpoints": "no model server of this pool is ready; try again later",
    "model-not-found": "no model server of this pool has this model; ask for one that /v1/models lists",
    "saturated": "all model servers are busy; try again later, or with a higher priority",
    "objective-out-of-reach": "no model server can keep this route's promise now; try again later",
    "queue-full": "all model servers are busy, and no more requests may wait; try again later",
    "displaced": "a request of a higher priority took this one's place in the queue; try again later",
    "expired": "no model server had room in the time that a request may wait; try again later",
}
_UNKNOWN = Rejection("model-not-found", 404)
_PUBLISHED = {
    "no-endpoints": "rejected-no-endpoints",
    "saturated": "rejected-saturated",
    "expired": "rejected-ttl-expired",
}
"""Reasons that llm-d's picker has a word for; the others keep ours."""


class InstancePicker:
    """Decides where requests go. See `Picker`. It belongs to one event loop.

    Args:
        dispatcher: picks among the endpoints of a pool, and lets requests wait.
        view: the pools as they are now.
        clock: the scheduler's, in seconds.
        board: is told every decision, for the page and the metrics.
        read_load: takes the load headers of responses.
        load: makes a server load an adapter of a route that it may lack.
        find_eligible: leaves out servers that nobody can reach now: a dead one has the least to do, so that it would
            attract every request.
        fallbacks: endpoints named beside the picked one.
        takes_list: whether Envoy's cluster takes them as one list; one of kind `ORIGINAL_DST` answers 503 to it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        view: Callable[[], PoolView],
        clock: Callable[[], float],
        *,
        board: PoolBoard,
        read_load: LoadReader,
        load: AdapterLoad | None = None,
        find_eligible: FindEligible = tuple,
        fallbacks: int = 0,
        takes_list: bool = True,
    ) -> None:
        self._dispatcher = dispatcher
        self._view = view
        self._clock = clock
        self._draw = Random()  # noqa: S311 - it shares requests out by the weights of rewrites
        self._board = board
        self._read_load = read_load
        self._load = load
        self._find_eligible = find_eligible
        self._fallbacks = fallbacks
        self._takes_list = takes_list
        # Bound once: a line that the level leaves out then costs next to nothing.
        self._log = log.bind()

    async def decide(self, asked: Asked) -> Directed | Refused:
        """Choose an endpoint; a request without a body, or with one that names no model, goes to any."""
        if not asked.body or asked.is_opaque:
            facts = RequestFacts(_id(asked), body_bytes=len(asked.body or b""))
            return await self._place(asked, facts, InstanceRequest(flow=_flow(asked), streamed=False), None)
        try:
            return await self._decide_on(asked, asked.body)
        except BadRequest as error:
            return Refused(400, error.type, error.message)

    async def _decide_on(self, asked: Asked, body: bytes) -> Directed | Refused:
        wanted = read_model_request(body)
        view = self._view()
        destination = view.catalogue.resolve(
            wanted.model,
            self._draw,
            objective=asked.header(*OBJECTIVE_HEADERS),
            served=view.served,
            has=lambda pool, adapter: self._dispatcher.scheduler.was_told(adapter, view.members.get(pool, ())),
        )
        facts = RequestFacts(_id(asked), wanted.model[:MAX_LOGGED], destination, len(body))
        if destination is None:
            self._board.refuse(facts, _UNKNOWN)
            return Refused(404, _UNKNOWN.reason, _unknown(wanted.model))
        renamed = rename_model(body, destination.model) if destination.model != wanted.model else None
        base = destination.model if destination.adapter is None else view.find_base(destination.pool)
        return await self._place(asked, facts, _instance_request(asked, wanted, destination, base), renamed)

    async def _place(
        self, asked: Asked, facts: RequestFacts, request: InstanceRequest, body: bytes | None
    ) -> Directed | Refused:
        eligible = _Eligible(self._view, facts.destination, asked.subset, self._find_eligible)
        arrived_at, began = self._clock(), perf_counter()
        if facts.destination is None or (asked.subset is not None and not eligible()):
            # Do not let it wait: it costs a server next to nothing, or no server that joins can have its model.
            pick = self._dispatcher.scheduler.pick(request, eligible(), arrived_at)
            seconds = perf_counter() - began
        else:
            pool = facts.destination.pool
            size = len(asked.body or b"")
            submitted = self._dispatcher.submit(pool, request, eligible, arrived_at, size=size)
            seconds = perf_counter() - began
            pick = await self._dispatcher.wait(pool, submitted)
            if isinstance(pick, Pick) and facts.destination.route and request.adapter is not None:
                await self._load_adapter(pick, request.adapter)
        facts = replace(facts, eligible=eligible.found, unreachable=eligible.left_out)
        record = self._board.record(facts, request, pick, seconds, arrived_at=arrived_at)
        if isinstance(pick, Rejection):
            self._log.info("pick.refused", reason=pick.reason, model=_short(request))
            reason = _PUBLISHED.get(pick.reason, pick.reason)
            return Refused(pick.status, reason, _SENTENCES[pick.reason], pick.retry_after)
        self._log.debug(
            "pick",
            request=facts.request,
            endpoint=pick.endpoint.address,
            model=_short(request),
            reasons=pick.reasons,
        )
        others = pick.fallbacks[: self._fallbacks]
        if facts.destination is not None and (most := facts.destination.failure.max_attempts) is not None:
            others = others[: most - 1]
        course = PlacementCourse(self._dispatcher, pick, request, self._clock, self._read_load, record=record)
        addresses = (pick.endpoint.address, *(each.address for each in others))
        return Directed(addresses, course, body, self._takes_list)

    async def _load_adapter(self, pick: Pick, adapter: str) -> None:
        if self._load is None:
            return
        is_over = False
        try:
            await self._load(pick.endpoint, adapter)
            is_over = True
        finally:
            if not is_over:
                # The client has left, so nobody else will end the placement.
                pick.placement.finish(None, self._clock())


class _Eligible:
    """The servers that a request may go to, whenever it is called: while it waits, they may come and go.

    Attributes:
        found: how many there were at the last call.
        left_out: how many of them were unreachable.
    """

    def __init__(
        self,
        view: Callable[[], PoolView],
        destination: Destination | None,
        subset: frozenset[str] | None,
        find_eligible: FindEligible,
    ) -> None:
        self._view = view
        self._pool = None if destination is None else destination.pool
        self._subset = subset
        self._find_eligible = find_eligible
        self.found = self.left_out = 0

    def __call__(self) -> Sequence[Endpoint]:
        view, subset = self._view(), self._subset
        members = view.endpoints if self._pool is None else view.members.get(self._pool, ())
        # The scheduler knows an unchanged tuple again, and then looks at no server's models.
        allowed = members if subset is None else [each for each in members if each.address in subset]
        eligible = self._find_eligible(allowed)
        self.found, self.left_out = len(eligible), len(allowed) - len(eligible)
        return eligible


def _instance_request(asked: Asked, wanted: ModelRequest, destination: Destination, base: str) -> InstanceRequest:
    return InstanceRequest(
        model=base,
        adapter=destination.adapter,
        prompt_tokens=wanted.prompt.tokens,
        prefix=wanted.prompt.fingerprint(destination.model, destination.adapter),
        priority=destination.priority,
        objective=_objective(asked, destination.slos),
        max_tokens=wanted.max_tokens,
        flow=_flow(asked),
        route=destination.route,
        max_wait=destination.failure.max_wait,
        # An answer that the picker does not read counts as whole: no first token and no usage are seen.
        streamed=wanted.streamed and not asked.is_unread,
    )


def _objective(asked: Asked, slos: Iterable[Slo]) -> Objective | None:
    """The route's objective; a request's own headers take precedence."""
    first_token = _milliseconds(asked.header(*FIRST_TOKEN_HEADERS))
    return find_goal(slos, first_token, _milliseconds(asked.header(*OUTPUT_TOKEN_HEADERS)))


def _milliseconds(text: str) -> float | None:
    """Seconds of a header; None if it is no number of milliseconds from 1 to an hour."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 7
    return int(text) / 1000 if is_number and 0 < int(text) <= 3_600_000 else None


def _flow(asked: Asked) -> str:
    return asked.header(*FLOW_HEADERS) or DEFAULT_FLOW


def _unknown(model: str) -> str:
    name = model[:MAX_LOGGED]
    return f"no route, rewrite or model server knows the model {name!r}; ask for one that /v1/models lists"


def _short(request: InstanceRequest) -> str:
    """The model for the log; clients choose its name."""
    return (request.adapter or request.model)[:MAX_LOGGED]


def _id(asked: Asked) -> str:
    return asked.header("x-request-id")[:MAX_LOGGED]
