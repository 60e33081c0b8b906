"""Requests that are sent again, with an `Idempotency-Key` or the same body: one model is asked, all get its answer."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest
from aiohttp import ClientPayloadError, ClientResponse, ClientSession
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.passing_bus import PassingBus
from tests.flow.kept_streams import DEADLINE, DOORS, Pair, ask_chat, ask_messages, ask_native, open_pair, open_two
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import open_gateway
from tests.flow.socket_frames import PATH, Frame, ask, frame, whole
from tests.until import until
from tg_base.bus import Bus, LogWriter
from tg_base.bus.memory import MemoryBus
from tg_base.config import ApiKey, Config, GatewayConfig, TextCompletionConfig
from tg_base.server import Processor
from tg_gateway.access import Limits
from tg_gateway.dialects import IdempotencyKey, digest_request
from tg_gateway.jobs.log import LEFT, kind_of
from tg_schema.topics import Topics

Asked = tuple[str, dict[str, Any]]
Asking = Callable[[str], Asked]
SENTENCE: Final = "the answer to another request is kept already"


def ask_completion(prompt: str) -> Asked:
    return "v1/completions", {"model": "counting", "prompt": prompt, "stream": True}


def ask_responses(prompt: str) -> Asked:
    metadata = {"turn": "1", "session": "2"}
    return "v1/responses", {"model": "counting", "input": prompt, "stream": True, "metadata": metadata}


def ask_ollama_chat(prompt: str) -> Asked:
    return "api/chat", {"model": "counting", "messages": [{"role": "user", "content": prompt}]}


def ask_ollama(prompt: str) -> Asked:
    return "api/generate", {"model": "counting", "prompt": prompt}


STREAMS: Final = (*DOORS, ask_completion, ask_responses, ask_ollama_chat, ask_ollama)


def as_whole(asked: Asked) -> Asked:
    """The same for the whole answer in one body."""
    path, body = asked
    rest = {name: value for name, value in body.items() if name != "stream_options"}
    return path, {**rest, ("streaming" if path.startswith("api/v1") else "stream"): False}


class Client:
    """Sends a request, with a key or without one, as often as a test likes."""

    def __init__(self, http: ClientSession, asked: Asked, key: str | None = "k", **headers: str) -> None:
        self._http = http
        self._asked = asked
        self._headers = headers if key is None else {"Idempotency-Key": key} | headers

    async def send(self, enough: Callable[[bytes], bool] = lambda _: False) -> tuple[int, bytes]:
        """The status, and what has come until it is enough, where the client leaves, or until the end."""
        path, body = self._asked
        async with asyncio.timeout(DEADLINE), self._http.post(path, json=body, headers=self._headers) as response:
            return response.status, await read_until(response, enough)


async def read_until(response: ClientResponse, enough: Callable[[bytes], bool]) -> bytes:
    got = b""
    try:
        while not enough(got) and (more := await response.content.readany()):
            got += more
    except ClientPayloadError:
        pass
    return got


def told(answer: bytes) -> bool:
    """Whether an answer has begun to tell the words 0, 1 and 2."""
    return b"1 " in answer


@pytest.mark.parametrize("asking", STREAMS)
async def test_who_was_cut_joins_from_the_beginning_on_any_gateway(asking: Asking) -> None:
    async with open_pair() as it:
        it.step(2)
        first = await Client(it.one, asking("4")).send(told)
        assert (first[0], told(first[1])) == (200, True)
        late = [asyncio.create_task(Client(http, asking("4")).send(told)) for http in (it.one, it.other)]
        for each in late:
            assert told((await each)[1])
        it.step(2)
        for http in (it.one, it.other):
            status, answer = await Client(http, asking("4")).send()
            assert status == 200
            assert [b"%d " % word in answer for word in range(5)] == [True] * 4 + [False]
            assert answer.startswith(first[1]) or asking not in DOORS
        assert (len(it.llm.requests), it.llm.generated) == (1, 4)


@pytest.mark.parametrize("asking", STREAMS)
async def test_a_whole_answer_is_made_once_and_has_its_status_and_length(asking: Asking) -> None:
    async with open_pair() as it:
        clients = [Client(http, as_whole(asking("3"))) for http in (it.one, it.other, it.one)]
        waiting = [asyncio.create_task(each.send()) for each in clients]
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        it.step(3)
        for status, answer in await asyncio.gather(*waiting, clients[1].send()):
            assert (status, b"0 1 2 " in answer, answer[:1]) == (200, True, b"{")
        assert len(it.llm.requests) == 1
        path, body = as_whole(asking("3"))
        async with it.other.post(path, json=body, headers={"Idempotency-Key": "k"}) as again:
            assert again.headers["X-Stream-Id"].startswith("ik-")
            assert int(again.headers["Content-Length"]) == len(await again.read())


async def test_two_starts_at_one_moment_are_one() -> None:
    async with open_pair(limits=Limits(background=40, all_background=80)) as it:
        for number in range(8):
            before = len(it.llm.requests)
            clients = [Client(http, ask_chat("2"), f"key-{number}") for http in (it.one, it.other) * 2]
            it.step(2)
            answers = await asyncio.gather(*(each.send() for each in clients))
            assert {status for status, _ in answers} == {200}
            assert len({answer for _, answer in answers}) == 1
            assert len(it.llm.requests) == before + 1


def turn(value: Any) -> Any:
    """An object with its keys in another order."""
    return dict(reversed(value.items())) if isinstance(value, dict) else value


@pytest.mark.parametrize("asking", STREAMS)
async def test_another_body_is_refused_and_the_same_less_stream_is_not(asking: Asking) -> None:
    async with open_pair() as it:
        it.step(2)
        assert (await Client(it.one, asking("2")).send())[0] == 200
        status, answer = await Client(it.other, asking("1")).send()
        assert (status, SENTENCE.encode() in answer) == (409, True)
        path, body = asking("2")
        turned = dict(reversed([(name, turn(value)) for name, value in body.items()]))
        assert (await Client(it.other, (path, turned)).send())[0] == 200
        if not {"streaming", "stream_options"} & body.keys():
            status, answer = await Client(it.other, as_whole(asking("2"))).send()
            assert (status, b"0 1 " in answer) == (200, True)
        assert len(it.llm.requests) == 1


async def test_another_path_is_another_request() -> None:
    async with open_pair() as it:
        it.step(2)
        assert (await Client(it.one, ask_chat("1")).send())[0] == 200
        for asking in (ask_native, ask_messages, ask_completion, ask_ollama):
            assert (await Client(it.other, asking("1")).send())[0] == 409
        assert len(it.llm.requests) == 1


async def test_a_key_of_another_api_key_is_unknown() -> None:
    keys = tuple(ApiKey(name=name, sha256=digest_of(name), store=name != "none") for name in ("one", "other", "none"))
    config = GatewayConfig(port=0, drain=0.05, auth="on", keys=keys)
    bearer = {each.name: {"Authorization": f"Bearer {token_of(each.name)}"} for each in keys}
    async with open_pair(config) as it:
        it.step(3)
        for name, words in (("one", "1"), ("other", "2"), ("one", "1"), ("other", "2")):
            assert (await Client(it.one, ask_chat(words), **bearer[name]).send())[0] == 200
        assert [request.prompt for request in it.llm.requests] == ["1", "2"]
        status, answer = await Client(it.one, ask_chat("1"), **bearer["none"]).send()
        assert (status, b"store = false" in answer) == (400, True)
        async with it.one.ws_connect(PATH, headers=bearer["none"]) as socket:
            await socket.send_json(ask("a", 1) | {"request_key": "k"})
            assert "store = false" in (await frame(socket))["error"]["message"]
        assert len(it.llm.requests) == 2


@pytest.mark.parametrize("key", ["", " ", "x" * 257, "x" * 8000, "a\tb", "\udce4"])
@pytest.mark.parametrize("asking", [ask_chat, ask_native, ask_messages, ask_ollama])
async def test_a_wrong_key_is_refused_and_no_model_asked(asking: Asking, key: str) -> None:
    async with open_pair() as it:
        for asked in (asking("1"), as_whole(asking("1"))):
            status, answer = await Client(it.one, asked, key).send()
            assert (status, b"1 to 256 printable characters" in answer) == (400, True)
        assert not it.llm.requests


@pytest.mark.parametrize(
    "asked",
    [
        ("v1/completions", {"model": "counting", "prompt": ["1", "2"]}),
        ("v1/responses", {"model": "counting", "input": "1", "background": True}),
    ],
)
async def test_what_is_no_single_answer_is_refused(asked: Asked) -> None:
    async with open_pair() as it:
        status, answer = await Client(it.one, asked).send()
        assert (status, b"Idempotency-Key" in answer) == (400, True)
        assert not it.llm.requests


async def test_what_generates_nothing_takes_no_notice() -> None:
    async with open_pair() as it:
        for path, method in (("v1/models", "GET"), ("api/v1/models", "GET"), ("api/version", "GET")):
            for key in ("", "x" * 3000, "k"):
                async with it.one.request(method, path, headers={"Idempotency-Key": key}) as response:
                    assert response.status == 200
        async with it.one.post("v1/streams/ik-1/cancel", headers={"Idempotency-Key": ""}) as response:
            assert response.status == 404


async def test_its_time_over_it_runs_anew() -> None:
    async with open_pair() as it:
        client = Client(it.one, ask_chat("1"), **{"X-Tokengrid-Keep": "1s"})
        it.step(2)
        async with asyncio.timeout(DEADLINE):
            while len(it.llm.requests) < 2:  # its time is its own clock's
                await client.send()
                await asyncio.sleep(0.05)


async def test_a_whole_answer_that_failed_may_be_asked_again_and_a_stream_is_told_again() -> None:
    async with open_pair(llm=FailingLlm()) as it:
        it.step(4)
        whole = Client(it.one, as_whole(ask_chat("1")), "whole")
        assert [(await whole.send())[0] for _ in range(2)] == [502, 502]
        assert len(it.llm.requests) == 2
        stream = Client(it.other, ask_chat("1"), "stream")
        answers = {(await stream.send())[1] for _ in range(2)}
        assert (len(answers), b"error" in answers.pop(), len(it.llm.requests)) == (1, True, 3)


class SlowlyClosedBus(PassingBus):
    """Its logs, once opened, close when the test lets them.

    Attributes:
        closes: set it to let them.
        put: how many responses were put on it.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.closes = asyncio.Event()
        self.put = 0

    @override
    @asynccontextmanager
    async def open_log(self, topic: str) -> AsyncIterator[LogWriter]:
        async with super().open_log(topic) as log:
            yield log
        await self.closes.wait()

    @override
    async def publish(self, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        await super().publish(topic, body, properties)
        self.put += "/tg-jobs-" in topic


async def test_what_is_asked_again_before_its_maker_is_done_with_the_first_is_made() -> None:
    bus = SlowlyClosedBus(MemoryBus())
    async with open_gateway(llm=FailingLlm(), bus=bus) as it:
        client = Client(it.http, as_whole(ask_chat("1")))
        assert (await client.send())[0] == 502
        again = asyncio.create_task(client.send())
        await until(lambda: bus.put == 2)
        bus.closes.set()
        assert ((await again)[0], len(it.llm.requests)) == (502, 2)


async def test_beyond_the_limits_it_is_refused_and_what_is_there_is_told() -> None:
    async with open_pair(limits=Limits(background=1, all_background=1)) as it:
        running = asyncio.create_task(Client(it.one, ask_chat("1"), "one").send())
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        assert (await Client(it.one, ask_chat("1"), "two").send())[0] == 429
        joined = asyncio.create_task(Client(it.one, ask_chat("1"), "one").send())
        it.step(1)
        assert await running == await joined
        assert len(it.llm.requests) == 1


async def test_a_stream_that_was_joined_is_read_on_by_its_id() -> None:
    async with open_pair() as it:
        path, body = ask_chat("2")
        it.step(4)
        async with it.one.post(path, json=body, headers={"Idempotency-Key": "k"}) as response:
            name, answer = response.headers["X-Stream-Id"], await response.read()
        async with it.other.get(f"v1/streams/{name}") as again:
            assert (again.status, await again.read()) == (200, answer)
        path, body = as_whole(ask_chat("2"))
        async with it.one.post(path, json=body, headers={"Idempotency-Key": "whole"}) as response:
            name = response.headers["X-Stream-Id"]
        async with it.other.get(f"v1/streams/{name}") as refused:
            assert (refused.status, "send its request again" in await refused.text()) == (400, True)


async def test_a_response_that_was_repeated_is_stored() -> None:
    async with open_pair() as it:
        it.step(1)
        for asked in (as_whole(ask_responses("1")), ask_responses("1")):
            for http in (it.one, it.other):
                _, answer = await Client(http, asked).send()
                name = answer.split(b'"id":"resp_', 1)[1].split(b'"')[0].decode()
                async with it.other.get(f"v1/responses/resp_{name}") as found:
                    assert (found.status, (await found.json())["status"]) == (200, "completed")
        assert len(it.llm.requests) == 1


async def ask_on_socket(it: Pair, request: Frame) -> list[Frame]:
    async with it.other.ws_connect(PATH) as socket:
        await socket.send_json(request)
        return await whole(socket)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_request_key_on_a_socket_joins_and_repeats(streaming: bool) -> None:
    async with open_pair() as it:
        request = ask("a", 3, streaming=streaming) | {"request_key": "r"}
        async with it.one.ws_connect(PATH) as socket:
            await socket.send_json(request)
            await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        # Its client has left.
        joined = asyncio.create_task(ask_on_socket(it, request))
        it.step(3)
        frames = await joined
        text = "".join(each["response"]["response"] for each in frames)
        assert (text, frames[-1]["complete"]) == ("0 1 2 ", True)
        again = await ask_on_socket(it, request | {"id": "b"})
        assert [each["response"] for each in again] == [each["response"] for each in frames]
        (refused,) = await ask_on_socket(it, ask("a", 2) | {"request_key": "r"})
        assert SENTENCE in refused["error"]["message"]
        for wrong in ("", "x" * 257):
            (refused,) = await ask_on_socket(it, request | {"request_key": wrong})
            assert "request_key must have" in refused["error"]["message"]
        assert len(it.llm.requests) == 1


async def test_a_socket_is_told_once_why_it_failed() -> None:
    async with open_pair(llm=FailingLlm()) as it:
        it.step(2)
        request = ask("a", 1, streaming=True) | {"request_key": "r"}
        for _ in range(2):
            *_, last = await ask_on_socket(it, request)
            assert last["complete"]
            assert last["error"]["type"] == "incomplete-stream"
        assert len(it.llm.requests) == 1


def reaches(size: int, got: bytes) -> bool:
    return len(got) >= size


async def repeat_until_whole(http: Sequence[ClientSession], asked: Asked, draw: random.Random) -> bytes:
    """What a client has in the end that loses its connection again and again, and sends its request again."""
    longest = 200
    while True:
        cut, longest = draw.randrange(1, longest), 2 * longest
        _, answer = await Client(draw.choice(http), asked).send(partial(reaches, cut))
        if len(answer) < cut:
            return answer


@pytest.mark.parametrize("asking", STREAMS)
async def test_any_cuts_clients_and_gateways_give_the_one_text(asking: Asking) -> None:
    words, draw = 12, random.Random()
    async with open_pair() as it:
        clients = [
            asyncio.create_task(repeat_until_whole((it.one, it.other), asking(str(words)), draw)) for _ in range(4)
        ]
        for _ in range(words):
            it.step(1)
            await asyncio.sleep(draw.random() / 50)
        answers = await asyncio.gather(*clients)
        assert all(b"%d " % word in answer for answer in answers for word in range(words))
        assert len(set(answers)) == 1 or asking not in DOORS
        assert (len(it.llm.requests), it.llm.generated) == (1, words)


ALICE = {"Authorization": f"Bearer {token_of('alice')}"}
BOB = {"Authorization": f"Bearer {token_of('bob')}"}
KEYS = tuple(
    ApiKey(name=name, sha256=digest_of(name), attach="same-body" if name == "alice" else None)
    for name in ("alice", "bob")
)


@asynccontextmanager
async def open_attaching(
    llm: CountingLlm | None = None, *, flow: bool = True, keys: tuple[ApiKey, ...] = ()
) -> AsyncIterator[tuple[Pair, Bus]]:
    """Two gateways and their bus; `flow`: whether the flow attaches."""
    table = TextCompletionConfig(model="counting", attach="same-body" if flow else None)
    config, model = Config(flows={"default": {"text-completion": table}}), llm or CountingLlm()
    model.step = asyncio.Semaphore(0)
    routes = config.routes("text-completion")
    settings = GatewayConfig(port=0, drain=0.05, keys=keys, auth="on" if keys else "auto")
    async with (
        aclosing(MemoryBus()) as bus,
        Processor(bus, config.topics, model, routes, models=(model.model,), grace=0.05),
        open_two(bus, routes, settings) as (one, other),
    ):
        yield Pair(model, one, other), bus


async def send(http: ClientSession, asked: Asked, **headers: str) -> bytes:
    """What comes until the end without a key."""
    return (await Client(http, asked, None, **headers).send())[1]


async def until_left(bus: Bus, asked: Asked, owner: str = "anybody") -> None:
    """Until the gateway has said that the first client has gone."""
    digest = await digest_request(f"/{asked[0]}", json.dumps(asked[1]).encode())
    topic = Topics().kept(IdempotencyKey("", owner, digest, digest).name)
    head = (await bus.read(topic))[0]
    async with asyncio.timeout(DEADLINE), bus.follow(topic, head.position) as entries:
        while kind_of(await anext(entries)) != LEFT:
            pass


@pytest.mark.parametrize("asking", [ask_messages, ask_responses])
async def test_who_was_cut_gets_the_same_answer_also_without_stream(asking: Asking) -> None:
    async with open_attaching() as (it, bus):
        it.step(2)
        assert told((await Client(it.one, asking("4"), None).send(told))[1])
        await until_left(bus, asking("4"))
        joined = asyncio.create_task(send(it.other, asking("4")))
        it.step(2)
        assert b"3 " in await joined
        assert b"0 1 2 3 " in await send(it.one, as_whole(asking("4")))
        assert len(it.llm.requests) == 1


async def test_beside_a_client_that_reads_another_one_has_an_answer_of_its_own() -> None:
    async with open_attaching() as (it, _):
        first = asyncio.create_task(send(it.one, ask_chat("2")))
        await asyncio.wait_for(it.llm.started.wait(), DEADLINE)
        second = asyncio.create_task(send(it.other, ask_chat("2")))
        await until(lambda: len(it.llm.requests) == 2)
        it.step(4)
        one, other = await first, await second
        assert (b"1 " in one, b"1 " in other, one == other) == (True, True, False)
        assert len(it.llm.requests) == 2


async def test_what_has_failed_is_asked_for_again() -> None:
    async with open_attaching(FailingLlm()) as (it, _):
        for number, http in enumerate((it.one, it.other, it.one), 1):
            it.step(1)
            assert b"error" in await send(http, ask_chat("1"))
            assert len(it.llm.requests) == number


async def test_a_key_attaches_for_itself_alone() -> None:
    async with open_attaching(flow=False, keys=KEYS) as (it, bus):
        it.step(8)
        first = await send(it.one, ask_chat("1"), **ALICE)
        await until_left(bus, ask_chat("1"), "alice")
        assert await send(it.other, ask_chat("1"), **ALICE) == first
        assert len(it.llm.requests) == 1
        for asked in (2, 3):
            assert b"0 " in await send(it.other, ask_chat("1"), **BOB)
            assert len(it.llm.requests) == asked
        assert (await Client(it.other, ask_chat("1"), **ALICE).send())[1] != first
        assert len(it.llm.requests) == 4
