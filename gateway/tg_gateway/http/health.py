"""Orchestrator -> gateway: the liveness probe `/health` and the readiness probe `/ready`."""

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from aiohttp import web

from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_gateway.access import Limits
from tg_gateway.http.middleware import defer_expectation
from tg_gateway.relay import Relay
from tg_gateway.telemetry import FreshAnswer
from tg_schema import TgError, encode

FRESH_SECONDS = 0.5
"""Seconds for which the bus's answer is reused, so that clients cannot make us flood the bus."""


class Alive(msgspec.Struct, frozen=True):
    """The answer to `/health`."""

    status: Literal["ok"] = "ok"


class Ready(msgspec.Struct, frozen=True):
    """The answer to `/ready`."""

    ready: bool
    missing: tuple[str, ...]


class Health:
    """`/health` and `/ready`, which needs a live processor of each of these routes.

    A plain peer announces nothing, so its state is unknown. A flow that an edit adds is not needed: until its model is
    open, the others can be asked. A flow that is removed and added again is needed again as soon as it has been found
    served.
    """

    def __init__(self, requestor: Requestor, needed: Iterable[Route[Any, Any]], relay: Relay, limits: Limits) -> None:
        self._requestor = requestor
        self._needed = tuple(route for route in needed if not route.plain)
        self._names = tuple(map(_name, self._needed))
        self._gone: set[tuple[str, str]] = set()
        self._relay = relay
        self._limits = limits
        self._bus_answers = FreshAnswer(self._ask_bus, FRESH_SECONDS)
        self._refusal: str | None = None

    def follow(self, routes: Iterable[Route[Any, Any]]) -> None:
        """Stop waiting for services that the edited file does not have."""
        kept = {_name(route): route for route in routes}
        self._needed = tuple(kept[name] for name in self._names if name in kept)
        self._gone.update(name for name in self._names if name not in kept)

    def routes(self) -> list[web.RouteDef]:
        """Both paths."""
        paths = {"/health": answer_health, "/ready": self._answer_ready}
        return [web.get(path, answer, expect_handler=defer_expectation) for path, answer in paths.items()]

    async def _answer_ready(self, request: web.Request) -> web.StreamResponse:
        missing = ["the gateway is shutting down"] if self._relay.draining else []
        if not await self._bus_answers.get():
            missing.append("the bus does not answer")
        if self._requestor.has_failed_subscription:
            missing.append("a subscription has ended and is being opened again")
        deserted = self._find_deserted()
        if deserted and self._requestor.refusal is not None:
            missing.append(f"processors cannot be asked what they serve: {self._requestor.refusal}")
        elif self._refusal is not None:
            missing.append(f"the bus takes no messages of this gateway: {self._refusal}")
        return make_ready((*missing, *map(_describe, deserted)))

    def _find_deserted(self) -> list[Route[Any, Any]]:
        served = {_name(route) for route in self._needed if self._requestor.routes.is_served(route)}
        self._gone -= served
        return [route for route in self._needed if _name(route) not in served | self._gone]

    async def _ask_bus(self) -> bool:
        try:
            async with asyncio.timeout(self._limits.ready):
                await self._requestor.bus.ping()
                self._refusal = await self._find_refusal()
        except (TgError, TimeoutError):
            return False
        return True

    async def _find_refusal(self) -> str | None:
        """Why we may not publish, if the bus refused a message before. Nothing is published for it."""
        if self._requestor.refusal is None:
            return None
        try:
            await self._requestor.bus.ping(self._requestor.topics.announce, produce=True)
        except TgError as error:
            return error.message
        return None


async def answer_health(request: web.Request) -> web.Response:
    """The answer to `/health`: the process runs."""
    return web.Response(body=encode(Alive()), content_type="application/json")


def make_ready(missing: tuple[str, ...]) -> web.Response:
    """The answer to `/ready`, by what the process lacks."""
    status = 503 if missing else 200
    return web.Response(status=status, body=encode(Ready(not missing, missing)), content_type="application/json")


def _name(route: Route[Any, Any]) -> tuple[str, str]:
    return route.flow, route.spec.name


def _describe(deserted: Route[Any, Any]) -> str:
    model = "" if deserted.model is None else f" (model {deserted.model})"
    return f"no live processor serves {deserted.spec.name} of flow {deserted.flow}{model}"
