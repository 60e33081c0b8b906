"""A route whose first model has no processor -> its features and its load: those of the first model that has one."""

import asyncio

from tests.flow.route_world import opened
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_base.config import AgentConfig, RouteConfig
from tg_base.telemetry import LOAD_RESPONSE_HEADER
from tg_flow.agent.core import AgentModel, AgentPrompts
from tg_flow.agent.core.calling import NativeCalling
from tg_gateway.http import make_load_headers

A_THEN_B = RouteConfig(models=("a", "b"))


@in_virtual_time
async def test_an_agent_calls_tools_as_the_live_model_can() -> None:
    async with opened(absent="a", r=A_THEN_B) as it:
        model = AgentModel(it.requestor, it.client(), AgentConfig(), AgentPrompts.of(it.config))
        assert isinstance(await model.calling(), NativeCalling)


@in_virtual_time
async def test_the_load_is_that_of_the_live_model() -> None:
    async with opened(absent="a", r=A_THEN_B) as it:
        queue = it.queue("b")
        it.models["b"].silent = True
        asking = asyncio.create_task(it.ask())
        await until(lambda: it.requestor.presence.serving(queue)[0].in_flight == 1)
        entry = it.requestor.routes.named["r"].entry
        assert "num_requests_running=1" in make_load_headers(it.requestor, "text", entry)[LOAD_RESPONSE_HEADER]
        asking.cancel()
