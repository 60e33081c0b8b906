"""The stock client's JsonSchema and our codec read each other's bytes, over the real broker."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pytest

from tests.connected import stock_new, stock_old
from tests.connected.stock_peer import StockPeer, stock_peer
from tests.pulsar_server import PulsarServer
from tg_base.bus import open_bus
from tg_schema import (
    AgentRequest,
    AgentResponse,
    AgentStep,
    Error,
    PromptRequest,
    PromptResponse,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    Token,
    decode,
    encode,
)

pytestmark = pytest.mark.connected

TEXT = 'a "quoted"\n\u2028 \U0001f600 ä \\ \x7f'
STEP = AgentStep(thought=TEXT, action="search", arguments={"q": TEXT, "": ""}, observation="", user="u")
ERROR = Error(type="rate-limited", message=TEXT, retry_after=1.5)

RECORDS = [
    TextCompletionRequest(
        TEXT, "p", streaming=True, model="m", sampling=Sampling(temperature=0.5, stop=("x",)), schema={"type": "object"}
    ),
    TextCompletionRequest(),
    TextCompletionResponse(
        response=TEXT,
        in_token=0,
        out_token=7,
        model="m",
        end_of_stream=True,
        finish_reason="stop",
        reasoning="why",
        tokens=(Token(1, "a", -0.5, ((2, -1.0),)),),
    ),
    TextCompletionResponse(error=ERROR, end_of_stream=True),
    TextCompletionResponse(),
    PromptRequest("template", {"a": '"json"', "b": TEXT}, True),
    PromptRequest(),
    PromptResponse(None, TEXT, None, True, 1, 2, "m", "stop"),
    PromptResponse(None, None, '{"a": [1]}', True),
    PromptResponse(ERROR),
    AgentRequest(TEXT, "state", ("a", "b"), (STEP, AgentStep()), "u", True),
    AgentRequest(),
    AgentResponse("thought", TEXT, True, False),
    AgentResponse("error", TEXT, True, True, ERROR),
    AgentResponse(),
]
GENERATIONS = {"old": stock_old, "new": stock_new}
KINDS = dict.fromkeys(type(record) for record in RECORDS)
CASES = [pytest.param(name, kind, id=f"{name}-{kind.__name__}") for name in GENERATIONS for kind in KINDS]


class Wire(NamedTuple):
    """The broker's URL, and a stock peer on it."""

    url: str
    peer: StockPeer


@pytest.fixture(scope="module")
def wire(pulsar: PulsarServer) -> Iterator[Wire]:
    with stock_peer(pulsar.service_url) as peer:
        yield Wire(pulsar.service_url, peer)


def stock_kind(generation: str, kind: type[Any]) -> type[Any]:
    """The stock class of the same name."""
    stock: type[Any] = getattr(GENERATIONS[generation], kind.__name__)
    return stock


def as_stock(generation: str, record: Any) -> Any:
    """A record of ours, as a stock peer that only knows its own fields would write it."""
    kind = stock_kind(generation, type(record))
    known: dict[str, Any] = {name: getattr(record, name, None) for name in kind._fields}
    if known.get("error") is not None:
        known["error"] = as_stock(generation, known["error"])
    if known.get("history") is not None:
        known["history"] = [as_stock(generation, step) for step in known["history"]]
    if known.get("group") is not None:
        known["group"] = list(known["group"])
    return kind(**known)


def without_additions(generation: str, record: Any) -> Any:
    """What is left of a record of ours when it has passed through a stock peer: the fields that the peer knows."""
    kind = stock_kind(generation, type(record))
    kept = {name: getattr(record, name) for name in record.__struct_fields__ if name in kind._fields}
    if kept.get("error") is not None:
        kept["error"] = msgspec.structs.replace(kept["error"], retry_after=None)
    return type(record)(**kept)


@pytest.mark.parametrize(("generation", "kind"), CASES)
async def test_a_stock_peer_reads_what_we_write(wire: Wire, generation: str, kind: type[Any]) -> None:
    topic = f"persistent://tg/flow/{uuid4().hex}"
    stock = stock_kind(generation, kind)
    consumer = await asyncio.to_thread(wire.peer.subscribe, topic, stock)
    async with open_bus(wire.url) as bus:
        for record in records_of(kind):
            await bus.publish(topic, encode(record), {"id": "1"})
    for record in records_of(kind):
        read = await asyncio.to_thread(wire.peer.receive, consumer)
        expected = as_stock(generation, record)
        for name in stock._fields:
            assert getattr(read, name) == getattr(expected, name), name
        if "error" in stock._fields:
            assert (read.error is None) == (getattr(record, "error", None) is None)


@pytest.mark.parametrize(("generation", "kind"), CASES)
async def test_we_read_what_a_stock_peer_writes(wire: Wire, generation: str, kind: type[Any]) -> None:
    topic = f"persistent://tg/flow/{uuid4().hex}"
    async with open_bus(wire.url) as bus, bus.subscribe(topic, None) as deliveries, asyncio.timeout(30):
        for record in records_of(kind):
            await asyncio.to_thread(wire.peer.send, topic, as_stock(generation, record))
            delivery = await anext(deliveries)
            assert delivery.properties["id"] == "1"
            assert decode(kind, delivery.body) == without_additions(generation, record)


def records_of(kind: type[Any]) -> list[Any]:
    """The samples of one kind."""
    return [record for record in RECORDS if type(record) is kind]


async def test_a_peer_that_fills_in_no_field_gets_our_defaults(wire: Wire) -> None:
    topic = f"persistent://tg/flow/{uuid4().hex}"
    async with open_bus(wire.url) as bus, bus.subscribe(topic, None) as deliveries:
        await asyncio.to_thread(wire.peer.send, topic, stock_new.TextCompletionRequest())
        async with asyncio.timeout(20):
            delivery = await anext(deliveries)
    assert not decode(TextCompletionRequest, delivery.body).streaming
