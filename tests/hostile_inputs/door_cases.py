"""The places of all doors, each with a part of what its kind has, before a model that interprets all of it."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Final, TypeVar

from aiohttp import ClientSession

from tests.hostile_inputs.asking import ask, is_answer, is_defect
from tests.hostile_inputs.doors import PLACES, Kind, Place
from tests.hostile_inputs.numbers import NUMBERS, make_masks
from tests.hostile_inputs.readers import CHECK_SECONDS, Case
from tests.hostile_inputs.schemas import make_schemas
from tests.hostile_inputs.texts import make_paths, make_patterns, make_stops
from tests.llama.demo_llm import opened
from tests.openapi.described_gateway import described_gateway
from tg_base.llm import object_schema
from tg_base.telemetry import configure_log

Waited = TypeVar("Waited")
EVERY: Final = 12
"""A place gets one of so many inputs with each seed; with as many seeds, all of them."""
PLAIN: Final[Mapping[Kind, bytes]] = {
    "schema": b'{"enum":[1]}',
    "strict tool": b'{"type":"object"}',
    "tool": b'{"type":"object","properties":{"a":{"enum":[1]}}}',
    "regex": b'"a|b"',
    "stop": b'"a stop"',
    "number": b"1",
    "mask": b'{"1":1}',
}
"""What is answered: a place at which it is not has another mistake, and shows nothing."""


def make_cases(seed: int, size: int) -> Iterator[Case]:
    """One request each, to a gateway in this process."""
    object_schema.CHECK_SECONDS = CHECK_SECONDS
    configure_log("json", "error")
    inputs = {kind: list(make()) for kind, make in _make_inputs(seed, size).items()}
    with asyncio.Runner() as runner:
        opening: asyncio.Future[ClientSession] = runner.get_loop().create_future()
        closing = asyncio.Event()
        serving = runner.get_loop().create_task(_serve(opening, closing))
        http = runner.run(_wait(opening))
        for number, (name, place) in enumerate(PLACES.items()):
            if place.kind in PLAIN:
                yield f"{name}: plain", partial(_ask, runner, http, place, PLAIN[place.kind], refused=False)
            for what, value in inputs[place.kind][(number + seed) % EVERY :: EVERY]:
                yield f"{name}: {what}", partial(_ask, runner, http, place, value)
        closing.set()
        runner.run(_wait(serving))


def _make_inputs(seed: int, size: int) -> "Mapping[Kind, Callable[[], Iterator[tuple[str, bytes]]]]":
    def write_schemas() -> Iterator[tuple[str, bytes]]:
        return ((name, json.dumps(schema).encode()) for name, schema in make_schemas(Random(seed), size))

    def write_texts(texts: Iterator[str]) -> Iterator[tuple[str, bytes]]:
        return ((text[:80], json.dumps(text).encode()) for text in texts)

    return {
        "schema": write_schemas,
        "strict tool": write_schemas,
        "tool": write_schemas,
        "regex": lambda: write_texts(make_patterns(Random(seed), size)),
        "stop": lambda: write_texts(make_stops(size)),
        "number": lambda: iter(NUMBERS.items()),
        "mask": lambda: make_masks(size),
        "path": lambda: ((path[:80], path.encode()) for path in make_paths(size)),
    }


async def _serve(opening: "asyncio.Future[ClientSession]", closing: asyncio.Event) -> None:
    async with opened() as service, described_gateway(service) as http:
        opening.set_result(http)
        await closing.wait()


async def _wait(future: "asyncio.Future[Waited]") -> Waited:
    return await future


def _ask(runner: asyncio.Runner, http: ClientSession, place: Place, value: bytes, *, refused: bool = True) -> None:
    status, said = runner.run(ask(http, place, value))
    assert not is_defect(status, said), (status, said[:1000])
    assert refused or is_answer(status, said), (status, said[:1000])
