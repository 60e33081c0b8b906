"""One request, one seed, all doors: the same text, tokens, usage and ending, over both buses."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace

import pytest
from aiohttp import ClientSession

from tests.flow.open_gateway import ON_ANY_PORT, until_listed
from tests.llama.demo_llm import STORY, opened
from tests.same_answer.row import MODEL, SYSTEM, Asked, Case, Place, Row, Told
from tests.same_answer.rows import KEPT_REFERENCE, REFERENCE, ROWS
from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.config import Config, TextCompletionConfig
from tg_base.server import Processor
from tg_gateway.app import Gateway

pytestmark = pytest.mark.model

# The stop string begins where a token does: of a token that is cut, a stream of tokens tells the part that is shown.
CASES = (
    Case("drawn", STORY, 12, "length", seed=7),
    Case("cut", STORY, 12, "length"),
    Case("stopped", STORY, 60, "stop", stop=" loved the"),
    Case("ended", "What is 2 + 3?", 60, "end"),
)


@asynccontextmanager
async def open_place(bus: Bus) -> AsyncIterator[Place]:
    """A gateway with the demo model behind it, on topics of its own."""
    flow = f"f-{uuid.uuid4().hex[:8]}"
    config = Config(flows={flow: {"text-completion": TextCompletionConfig(model=MODEL)}})
    routes = config.routes("text-completion")
    queues = tuple(route.request for route in routes)
    async with (
        opened() as service,
        Processor(bus, config.topics, service, routes, models=(MODEL,), grace=0.05),
        Requestor(bus, config.topics, queues=queues) as requestor,
        Gateway(ON_ANY_PORT, requestor, routes) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until_listed(http)
        yield Place(http, gateway.url)


async def prepare(place: Place, case: Case) -> Asked:
    """The conversation as the model's template makes it, as text and as ids."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": case.question}]
    async with place.http.post("/chat_tokenize", json={"messages": messages}) as response:
        found = await response.json()
    return Asked(case, found["templated_text"], tuple(token["id"] for token in found["tokenize_response"]))


def expect(row: Row, case: Case, reference: Told) -> Told:
    """The reference, without what the door does not tell, and with its word for the ending."""
    told = row.tells.split()
    silent = {field.name: None for field in fields(Told) if field.name not in (*told, "reason")}
    return replace(reference, reason=row.words.get(case.ending), **silent)


async def test_every_door_gives_the_same_answer(bus: Bus) -> None:
    asked_doors = set()
    async with open_place(bus) as place:
        for case in CASES:
            asked = await prepare(place, case)
            references = {
                row.keeps_stop: row.read(await row.send(place, asked))
                for row in (REFERENCE, replace(KEPT_REFERENCE, keeps_stop=True))
            }
            assert references[False].in_token == len(asked.ids)
            for row in ROWS:
                if not row.takes(case):
                    continue
                asked_doors.add(row.name)
                told, expected = row.read(await row.send(place, asked)), expect(row, case, references[row.keeps_stop])
                assert (row.name, case.name, told) == (row.name, case.name, expected)
    assert asked_doors == {row.name for row in ROWS}
