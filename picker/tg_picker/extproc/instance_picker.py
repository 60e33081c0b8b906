"""Asked -> scheduler -> decision: from a request's body and headers to the model server that runs it."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from random import Random

import structlog
from msgspec import Struct
from msgspec.structs import replace

from tg_picker.core import Endpoint, InstanceRequest, Objective, Rejection
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.model_request import ModelRequest, read_model_request, rename_model
from tg_picker.extproc.placement_course import PlacementCourse
from tg_picker.picking import PoolPicker
from tg_picker.pools import Destination, Slo, find_goal
from tg_picker.pools.adapter_loader import Post
from tg_picker.pools.followed_pools import FollowedPools
from tg_picker.status import RequestFacts
from tg_schema.errors import BadRequest

OBJECTIVE_HEADERS = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FLOW_HEADERS = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
FIRST_TOKEN_HEADERS = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
OUTPUT_TOKEN_HEADERS = ("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms")
DEFAULT_FLOW = "default-flow"
MAX_LOGGED = 100
"""Most characters of a client's text in the log or in an error."""

log = structlog.get_logger()

_SENTENCES = {
    "no-endpoints": "no model server of this pool is ready; try again later",
    "model-not-found": "no model server of this pool has this model; ask for one that /v1/models lists",
    "saturated": "all model servers are busy; try again later, or with a higher priority",
    "objective-out-of-reach": "no model server can meet this route's objective now; try again later",
    "queue-full": "all model servers are busy, and no more requests may wait; try again later",
    "displaced": "a request of a higher priority took this one's place in the queue; try again later",
    "expired": "no model server had capacity in the time that a request may wait; try again later",
}
_UNKNOWN = Rejection("model-not-found", 404)
_PUBLISHED = {
    "no-endpoints": "rejected-no-endpoints",
    "saturated": "rejected-saturated",
    "expired": "rejected-ttl-expired",
}
"""Reasons for which llm-d's picker has a name; the others keep ours."""


class InstancePicker:
    """Picks a server for each request. See `Picker`. It belongs to one event loop.

    Args:
        picker: picks among the endpoints of a pool, and lets requests wait.
        post: sends a server the call to load an adapter that it may lack; None = no adapters are loaded.
        fallbacks: endpoints that are named in addition to the picked one.
        takes_list: whether Envoy's cluster takes them as one list; a cluster of type `ORIGINAL_DST` would answer 503.
    """

    def __init__(
        self, picker: PoolPicker, *, post: Post | None = None, fallbacks: int = 0, takes_list: bool = True
    ) -> None:
        self._picker = picker
        self._draw = Random()  # noqa: S311 - it chooses by the weights of rewrites
        self._post = post
        self._fallbacks = fallbacks
        self._takes_list = takes_list
        # Bind once: then a line that the log level suppresses costs next to nothing.
        self._log = log.bind()

    async def decide(self, asked: Asked) -> Directed | Refused:
        """Choose an endpoint. A request without a body, or whose body names no model, may go to any endpoint."""
        if not asked.body or asked.is_opaque:
            facts = RequestFacts(_id(asked), body_bytes=len(asked.body or b""))
            return await self._place(asked, facts, InstanceRequest(flow=_flow(asked), streamed=False), None)
        try:
            return await self._decide_on(asked, asked.body)
        except BadRequest as error:
            return Refused(400, error.type, error.message)

    async def _decide_on(self, asked: Asked, body: bytes) -> Directed | Refused:
        wanted = read_model_request(body)
        view = self._picker.pools.view
        objective = asked.header(*OBJECTIVE_HEADERS)
        destination = view.resolve(wanted.model, self._draw, self._picker.scheduler, objective)
        facts = RequestFacts(_id(asked), wanted.model[:MAX_LOGGED], destination, len(body))
        if destination is None:
            self._picker.board.refuse(facts, _UNKNOWN)
            return Refused(404, _UNKNOWN.reason, _unknown(wanted.model))
        renamed = rename_model(body, destination.model) if destination.model != wanted.model else None
        request = _instance_request(asked, wanted, destination, view.find_base(destination))
        return await self._place(asked, facts, request, renamed)

    async def _place(
        self, asked: Asked, facts: RequestFacts, request: InstanceRequest, body: bytes | None
    ) -> Directed | Refused:
        pool = None if facts.destination is None else facts.destination.pool
        eligible = _Eligible(self._picker.pools, pool, asked.subset)
        # A request without a model never waits: it costs a server next to nothing. Nor does one with an empty subset.
        waits = asked.subset is None or bool(eligible())
        pick, record = await self._picker.place(
            request,
            pool if waits else None,
            eligible,
            lambda: replace(facts, eligible=eligible.found, unreachable=eligible.left_out),
            arrived_at=self._picker.clock(),
            size=len(asked.body or b""),
        )
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
        course = PlacementCourse(self._picker, pick, request, record)
        if self._post is not None and request.route and request.adapter is not None:
            with ExitStack() as leaving:
                # If the client leaves during the load, nothing else would end the placement.
                leaving.callback(course.end, None)
                await self._picker.loader.load(pick.endpoint, request.adapter, self._post)
                leaving.pop_all()
        addresses = (pick.endpoint.address, *(each.address for each in others))
        return Directed(addresses, course, body, self._takes_list)


class _Eligible(Struct, eq=False):
    """Finds the servers that a request may go to, each time it is called: they may change while the request waits.

    Attributes:
        pools: all pools.
        pool: the request's pool; None = any.
        subset: the addresses to choose from; None = all.
        found: the number of servers at the last call.
        left_out: the number of unreachable servers that were left out at the last call.
    """

    pools: FollowedPools
    pool: str | None
    subset: frozenset[str] | None
    found: int = 0
    left_out: int = 0

    def __call__(self) -> Sequence[Endpoint]:
        view, subset = self.pools.view, self.subset
        members = view.endpoints if self.pool is None else view.members.get(self.pool, ())
        # Pass an unchanged tuple: the scheduler recognizes it, and then need not look at the servers' models.
        allowed = members if subset is None else [each for each in members if each.address in subset]
        # An unreachable server has the least to do, so it would attract every request.
        eligible = self.pools.find_eligible(allowed)
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
        # An answer that the picker cannot read counts as one that comes whole: no first token and no usage are seen.
        streamed=wanted.streamed and not asked.is_unread,
    )


def _objective(asked: Asked, slos: Iterable[Slo]) -> Objective | None:
    """The route's objectives; the request's own headers take precedence."""
    first_token = _milliseconds(asked.header(*FIRST_TOKEN_HEADERS))
    return find_goal(slos, first_token, _milliseconds(asked.header(*OUTPUT_TOKEN_HEADERS)))


def _milliseconds(text: str) -> float | None:
    """Seconds of a header; None if it is not a number of milliseconds from 1 to an hour."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 7
    return int(text) / 1000 if is_number and 0 < int(text) <= 3_600_000 else None


def _flow(asked: Asked) -> str:
    return asked.header(*FLOW_HEADERS) or DEFAULT_FLOW


def _unknown(model: str) -> str:
    name = model[:MAX_LOGGED]
    return f"no route, rewrite or model server knows the model {name!r}; ask for one that /v1/models lists"


def _short(request: InstanceRequest) -> str:
    """The model for the log, truncated, because clients choose its name."""
    return (request.adapter or request.model)[:MAX_LOGGED]


def _id(asked: Asked) -> str:
    return asked.header("x-request-id")[:MAX_LOGGED]
