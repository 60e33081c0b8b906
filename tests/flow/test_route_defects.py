"""A route -> its models: what once went wrong, in the requestor."""

import asyncio

from tests.flow.route_world import opened
from tests.virtual_time import in_virtual_time
from tg_base.config import RouteConfig

A_THEN_B = RouteConfig(models=("a", "b"))
THREE = RouteConfig(models=("a", "b", "c"))


@in_virtual_time
async def test_two_silent_models_are_given_up_with_default_clocks() -> None:
    async with opened(r=THREE) as it:
        it.models["a"].silent = it.models["b"].silent = True
        assert (await it.ask()).model == "c"
        assert 120 <= asyncio.get_running_loop().time() < 150
