"""Small inputs with a large meaning: they are refused, or end within a bound of work, wherever they are interpreted."""

import asyncio
import json

import pytest
from aiohttp import ClientSession

from tests.fakes.chat_llm import ABLE, ChatLlm
from tests.fakes.willing_llm import WillingLlm
from tests.hostile_inputs.asking import ask
from tests.hostile_inputs.bodies import Body, make_bodies
from tests.hostile_inputs.doors import PLACES
from tests.hostile_inputs.run import find_unbounded
from tests.hostile_inputs.schemas import double
from tests.openapi.described_gateway import MODEL, described_gateway

EVERY = 37
"""Of so many bodies one is sent here, and all by `python -m tests.hostile_inputs`."""


@pytest.mark.parametrize("module", ["readers", pytest.param("door_cases", marks=pytest.mark.model)])
async def test_what_is_interpreted_ends_within_its_bound(module: str) -> None:
    """By itself, and at each place of each door."""
    assert await find_unbounded(seed=1, size=30, module=f"tests.hostile_inputs.{module}") == ""


@pytest.mark.parametrize("name", [name for name, place in PLACES.items() if place.kind in {"schema", "strict tool"}])
async def test_a_door_refuses_such_a_schema_before_a_model_is_asked(name: str) -> None:
    llm = ChatLlm(features=ABLE | {"raw"})
    llm.model = MODEL
    async with described_gateway(llm) as http:
        for word in ("allOf", "anyOf", "properties"):
            status, said = await ask(http, PLACES[name], json.dumps(double(word, 30)).encode())
            assert "too much work" in said, (status, said)
            assert status in {400, 422} or PLACES[name].socket or "streamed" in name, (status, said)
        async with http.get("health") as response:
            assert response.status == 200
    assert not llm.requests


async def test_what_cannot_be_read_is_no_defect() -> None:
    """Numbers, texts and names that are none, at every place of every door's bodies."""
    assert not await find_defects(list(make_bodies())[::EVERY])


async def find_defects(bodies: list[Body]) -> list[str]:
    """The bodies that are answered by a 5xx which says that something of ours failed."""
    async with described_gateway(WillingLlm(MODEL)) as http:
        answers = [await send(http, body) for body in bodies]
    return [
        f"{body.method} {body.path}: {body.wrong}"
        for body, status in zip(bodies, answers, strict=True)
        if status == 500
    ]


async def send(http: ClientSession, body: Body) -> int:
    """The status of the answer."""
    async with http.request(body.method, body.path, data=body.data) as response:
        await response.read()
        return response.status


def test_the_bound_finds_what_has_none() -> None:
    """What never ends is ended, and named."""
    found = asyncio.run(find_unbounded(seed=1, size=30, module="tests.hostile_inputs.endless", cpu_seconds=0.2))
    assert found.startswith("never ends")
