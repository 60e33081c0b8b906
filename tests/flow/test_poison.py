"""Nonsense on every topic that the pipeline reads: it is dropped, and what makes sense is answered as before."""

from uuid import uuid4

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.typed_clients import LlmClient
from tests.flow.patient_timing import PatientTiming
from tg_base.bus import Bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION
from tg_schema.topics import Topics

TOPICS = Topics("tg/notify")
"""Not where other tests hear presence."""
OFTEN = PatientTiming(0.2)
HUGE = "9" * 5000
BODIES = (
    b"", b"\x00\xff\xfe", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"x" * 1_000_000,
    b'[["s",1,true,"x"]]', b'[["s",1,false,null],7]', f'[["s",{HUGE},false]]'.encode(),
    b'{"type":"heartbeat","inbox":"i","acks":{"l":-5}}', b'{"type":"nack","inbox":"i","link":"l","first":-1}',
    b'{"type":"cancel","streams":[["s",1]],"ttl":1e308}', b'{"type":"cancel","streams":[[]],"ttl":1}',
    b'{"type":"confirmed","key":["s",1]}', b'{"type":"nope"}',
    b'{"processor":"p","queues":["q"],"capacity":-1,"in_flight":-1,"links":{"i":["l",-7]}}',
    f'{{"processor":"{"p" * 10_000}","queues":[],"capacity":1,"in_flight":{HUGE}}}'.encode(),
)  # fmt: skip
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"id": ""},
    {"id": "x" * 10_000, "reply": "no topic at all", "deadline": "soon", "attempt": "nan"},
    {"id": "x", "attempt": HUGE, "deadline": "-1"},
    {"processor": "a b/../c\r\n", "link": "l", "seq": "0"},
    {"processor": "p", "link": "l", "seq": HUGE},
    {"processor": "p", "link": "l", "seq": "-1"},
)


@pytest.mark.parametrize("kind", ["request", "response", "inbox", "control", "announce", "presence"])
async def test_nonsense_disturbs_nobody(bus: Bus, kind: str) -> None:
    flow, service = uuid4().hex, TEXT_COMPLETION.name
    route = Route(flow, TEXT_COMPLETION, TOPICS.request(flow, service), TOPICS.response(flow, service))
    async with (
        Processor(bus, TOPICS, CountingLlm(), (route,), timing=OFTEN) as processor,
        Requestor(bus, TOPICS, timing=OFTEN) as requestor,
    ):
        topic = {
            "request": route.request,
            "response": route.response,
            "inbox": requestor._inbox.topic,
            "control": TOPICS.control(processor.name),
            "announce": TOPICS.announce,
            "presence": TOPICS.presence,
        }[kind]
        client = LlmClient(requestor, route)
        assert await client.request("", "3") == "0 1 2 "
        for properties in PROPERTIES:
            for body in BODIES:
                await bus.publish(topic, body, properties)
            assert await client.request("", "3", streaming=True, timeout=20) == "0 1 2 "
        assert await client.request("", "3", streaming=True, timeout=20) == "0 1 2 "
