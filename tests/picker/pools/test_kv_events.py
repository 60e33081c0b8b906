"""Model servers that tell of their KV caches: what they have is known, and survives a restart of either side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.fakes.kv_publisher import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    KvPublisher,
    SGLangBlockStored,
    kv_publisher,
)
from tests.fakes.stream_server import stream_server
from tests.until import until
from tg_picker.core import (
    Endpoint,
    InstanceRequest,
    Pick,
    Scheduler,
    ServerState,
    fingerprint_tokens,
    salt_tokens,
)
from tg_picker.core.state.kv_blocks import MAX_KV_BLOCKS
from tg_picker.extproc.model_request import read_model_request
from tg_picker.pools import kv_subscriber as module
from tg_picker.pools.kv_events import MAX_TOKENS
from tg_picker.pools.kv_stream import EVENTS_A_STEP
from tg_picker.pools.kv_subscriber import KvEventOptions, KvSubscriber
from tg_picker.pools.metrics import KV_EVENTS


@pytest.fixture(autouse=True)
def _reconnects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECONNECT_SECONDS", 0.01)


LONG = tuple(range(640))
OTHER = tuple(range(1000, 1640))


class Followed:
    """A scheduler that follows servers on loopback."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()

    def endpoint(self, server: KvPublisher, *, replayed: bool = True) -> Endpoint:
        """It is found by its labels alone. The address is that of requests."""
        labels = {"kv-events-port": str(server.port)}
        if replayed:
            labels["kv-replay-port"] = str(server.replay_port)
        return Endpoint(f"127.0.0.1:{server.port + 1}", "s", labels)

    @asynccontextmanager
    async def follow(self, server: KvPublisher, *, replayed: bool = True) -> AsyncIterator[ServerState]:
        followed, endpoint = server.followed, self.endpoint(server, replayed=replayed)
        async with KvSubscriber(self.scheduler, KvEventOptions()) as subscriber:
            subscriber.update((endpoint,))
            state = self.scheduler.server(endpoint)
            await until(lambda: server.followed > followed and (state.prefixes.source != "believed" or not replayed))
            yield state


def counted(result: str) -> float:
    return float(KV_EVENTS.labels(result)._value.get())


def match(state: ServerState, tokens: tuple[int, ...], adapter: str = "", salt: str = "") -> int:
    return state.prefixes.match(fingerprint_tokens(tokens, salt_tokens(adapter, salt)))


def fill_all_but(left: int) -> BlockStored:
    """Blocks of one token each, after which a picker follows only `left` more of this server."""
    count = MAX_KV_BLOCKS - left
    return BlockStored(list(range(count)), None, [1] * count, 1, None, "GPU", None)


@pytest.mark.parametrize("positional", [False, True])
async def test_what_is_stored_removed_and_cleared_is_known(positional: bool) -> None:
    """The published forms, with names and by position. An eviction is known, which no placement tells."""
    async with kv_publisher() as server, Followed().follow(server) as state:
        server.positional = positional
        await server.tell(server.stored(LONG), server.stored(OTHER, adapter="x"))
        await until(lambda: match(state, LONG) == match(state, OTHER, "x") == 10)
        assert match(state, OTHER) == 0
        await server.tell(server.removed(LONG, 12))
        await until(lambda: match(state, LONG) == 3)
        state.prefixes.add(fingerprint_tokens((1,) * 64))
        await server.tell(AllBlocksCleared())
        await until(lambda: not len(state.prefixes) and state.prefixes.source == "exact")


async def test_a_request_goes_where_its_prompt_is_cached() -> None:
    """A completion in token ids, as a picker reads it, which nobody has placed before."""
    async with kv_publisher() as server, (followed := Followed()).follow(server) as state:
        await server.tell(server.stored(LONG, extra_keys=[("mine",), *([None] * 39)]))
        await until(lambda: match(state, LONG, salt="mine") == 10)
        others = [Endpoint(f"127.0.0.2:{port}") for port in range(1, 20)]
        body = {"model": "m", "prompt": [*LONG, 5], "cache_salt": "mine"}
        prompt = read_model_request(msgspec.json.encode(body)).prompt
        wanted = InstanceRequest("m", None, prompt.tokens, prompt.fingerprint("m", None))
        pick = followed.scheduler.pick(wanted, [*others, state.endpoint], 1.0)
        assert isinstance(pick, Pick)
        assert (pick.endpoint, "cached blocks 10" in pick.reasons) == (state.endpoint, True)


async def test_sglang_tells_the_same() -> None:
    """Pages, each in an event of its own, with the salt in a field."""
    async with kv_publisher(64) as server, Followed().follow(server) as state:
        pages = [
            SGLangBlockStored([at], at - 1 or None, list(LONG[64 * at - 64 : 64 * at]), 64, None, "GPU", "mine")
            for at in range(1, 11)
        ]
        await server.tell(*pages)
        await until(lambda: match(state, LONG, salt="mine") == 10)
        await server.tell(BlockRemoved([9, 10], "GPU"))
        await until(lambda: match(state, LONG, salt="mine") == 8)
        assert match(state, LONG) == 0


async def test_a_new_picker_knows_what_a_server_had_told_before() -> None:
    """Of a server that restarts meanwhile nothing is believed any more, and it is called restarted."""
    async with kv_publisher() as server:
        server.room = 3
        await server.tell(fill_all_but(45))
        for blocks in range(4, 40, 4):
            await server.tell(server.stored(LONG[: 16 * blocks], blocks - 4))
        await server.tell(server.stored(LONG, 36))
        async with Followed().follow(server) as state:
            assert (match(state, LONG), state.prefixes.source) == (10, "exact")
            state.prefixes.add(fingerprint_tokens((1,) * 64))
            state.adapters.use("x", 1.0, {})
            await server.restart()
            await until(lambda: not len(state.prefixes) and state.prefixes.source == "exact")
            assert not state.adapters.used_at
            await server.tell(fill_all_but(45), server.stored(LONG))
            await until(lambda: match(state, LONG) == 10)
            assert state.prefixes.source == "exact"


async def test_a_server_that_restarted_and_has_told_more_than_before_is_known_again() -> None:
    async with kv_publisher() as server, Followed().follow(server) as state:
        await server.tell(server.stored(LONG))
        await until(lambda: match(state, LONG) == 10)
        await server.restart()
        for _ in range(3):
            await server.tell(server.stored(OTHER), lost=True)
        await until(lambda: match(state, OTHER) == 10 and match(state, LONG) == 0 and state.prefixes.source == "exact")


@pytest.mark.parametrize("topic", [(b"",), ()])
async def test_what_was_missed_is_asked_for(topic: tuple[bytes, ...]) -> None:
    """Servers before vLLM 0.26 leave the topic out of what they send again."""
    async with kv_publisher() as server, Followed().follow(server) as state:
        server.frames = topic
        await server.tell(server.stored(LONG[:320]))
        await server.tell(server.stored(LONG, 20), lost=True)
        await server.tell(server.removed(LONG, 36), lost=True)
        await server.tell(server.stored(OTHER))
        await until(lambda: match(state, OTHER) == 10)
        assert match(state, LONG) == 9
        await until(lambda: state.prefixes.source == "exact")


@pytest.mark.parametrize("replayed", [False, True])
async def test_what_cannot_be_had_again_leaves_beliefs(replayed: bool) -> None:
    """What was told stays believed, as what was placed is; what is told from then on counts as before."""
    lost = counted("lost")
    async with kv_publisher(kept=1) as server, Followed().follow(server, replayed=replayed) as state:
        await server.tell(server.stored(LONG))
        await until(lambda: match(state, LONG) == 10)
        await server.tell(server.removed(LONG), lost=True)
        await server.tell(server.stored(OTHER))
        await until(lambda: match(state, OTHER) == 10 and state.prefixes.source == "partial")
        assert (match(state, LONG), len(state.prefixes.told)) == (10, 10)
        assert counted("lost") == lost + 1
        await server.tell(server.removed(OTHER))
        await until(lambda: match(state, OTHER) == 0)
        await server.tell(AllBlocksCleared())
        await until(lambda: state.prefixes.source == "exact")


async def test_without_a_replay_another_connection_leaves_beliefs_alone() -> None:
    async with kv_publisher() as server, Followed().follow(server, replayed=False) as state:
        await server.tell(server.stored(LONG))
        await until(lambda: match(state, LONG) == 10)
        await server.restart()
        await until(lambda: not state.prefixes.told)
        assert match(state, LONG) == 10
        await until(lambda: server.followers)
        await server.tell(server.stored(OTHER))
        await until(lambda: match(state, OTHER) == 10 and state.prefixes.source == "exact")


class BlockTouched(Event):
    """Of a version to come."""

    block_hashes: list[int | bytes]


async def test_what_nobody_knows_is_counted_and_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown events and fields, repeated and late messages, nonsense; then the next message counts."""
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(module, "REPLAY_SECONDS", 0.05)
    unread, repeated, unplaced = counted("unread"), counted("repeated"), counted("unplaced")
    async with kv_publisher() as server, Followed().follow(server) as state:
        first = msgspec.to_builtins(server.stored(LONG), builtin_types=(bytes,))
        await server.tell({**first, "new_field": {"deep": [1]}}, BlockTouched([1]), ["BlockStored", 5], 7, None)
        await until(lambda: match(state, LONG) == 10)
        assert counted("unread") == unread + 4
        number, payload = server.kept[0]
        for frames in [(b"",), (b"", b"\0" * 7, payload), (b"", number.to_bytes(8, "big"), payload), (b"\0" * 9,) * 3]:
            await server.send(*frames)
        for nonsense in [b"", b"\xc1", b"\x90", b"\x91" * 5_000, b"{}", msgspec.msgpack.encode(["now", []])]:
            await server.tell_raw(nonsense)
        await server.tell(server.stored(OTHER, 1), server.stored(OTHER, extra_keys=[(("image", 3),)] * 40))
        await server.tell(server.stored(OTHER, extra_keys=[("mine",), *([None] * 19), *([("image",)] * 20)]))
        await until(lambda: match(state, OTHER, salt="mine") == 5)
        assert counted("repeated") == repeated + 1
        assert (counted("unread"), counted("unplaced")) == (unread + 10, unplaced + 3)
        assert match(state, LONG) == 10
        # ZMQ leaves a server that sends too much, and comes back.
        await server.tell_raw(b"\0" * 200_000)
        await until(lambda: server.followed == 2 and state.prefixes.source == "believed")
        await server.tell(server.stored(OTHER))
        await until(lambda: match(state, OTHER) == 10)


async def test_layers_that_forget_the_beginning_count_for_nothing() -> None:
    """A model of several kinds of layers tells of each; those that use all of a prompt decide."""
    async with kv_publisher() as server, Followed().follow(server) as state:
        window: dict[str, Any] = {
            "group_idx": 0,
            "kv_cache_spec_kind": "sliding_window",
            "kv_cache_spec_sliding_window": 128,
        }
        await server.tell(server.stored(LONG, **window), server.removed(LONG, group_idx=0))
        await server.tell(server.stored(LONG, group_idx=1, kv_cache_spec_kind="full_attention"))
        await server.tell(server.removed(LONG, group_idx=0), server.removed(LONG, 39, group_idx=1))
        await until(lambda: match(state, LONG) == 9)


async def test_a_server_with_too_many_blocks_is_known_in_part() -> None:
    async with kv_publisher() as server, Followed().follow(server) as state:
        await server.tell(fill_all_but(20), server.stored(LONG))
        await until(lambda: match(state, LONG) == 5 and state.prefixes.source == "partial")


async def test_a_flood_leaves_the_loop_to_others() -> None:
    """However much is here to be read, others have their turn between two messages."""
    async with kv_publisher() as server, Followed().follow(server) as state:
        prompts = [tuple(range(at, at + 640)) for at in (0, 1000)]
        for _ in range(50):
            await server.tell(*map(server.stored, prompts), *map(server.removed, prompts))
        await server.tell(server.stored(LONG))
        most, before = 0.0, counted("applied")
        while match(state, LONG) < 10:
            await asyncio.sleep(0)
            now = counted("applied")
            most, before = max(most, now - before), now
        assert most <= 4


async def test_a_message_of_many_events_leaves_the_loop_to_others() -> None:
    """Also if none of them means anything: a message of 1 MiB may hold a million of these."""
    async with kv_publisher() as server, Followed().follow(server) as state:
        await server.tell(*[None] * 10_000, server.stored(LONG))
        most, first = 0.0, counted("unread")
        before = first
        while match(state, LONG) < 10:
            await asyncio.sleep(0)
            now = counted("unread")
            most, before = max(most, now - before), now
        assert (before - first, most <= EVENTS_A_STEP) == (10_000, True)
        await until(lambda: state.prefixes.source == "partial")


async def test_a_gigabyte_of_events_is_kept_in_bounds() -> None:
    """A share of it, beyond the bound: blocks and their hashes may have any size."""
    unread = counted("unread")
    async with kv_publisher() as server, Followed().follow(server) as state:
        large = BlockStored([0], None, [0] * MAX_TOKENS, MAX_TOKENS, None, None, None)
        for at in range(20):
            await server.tell(replace(large, block_hashes=[at], token_ids=[at] * MAX_TOKENS))
        for _ in range(10):
            await server.tell(
                BlockRemoved([b"h" * 100_000], None), replace(large, block_hashes=[b"h" * 100_000], token_ids=[0])
            )
        await server.tell([0] * 100_000)
        await until(lambda: counted("unread") == unread + 21)
        assert len(state.prefixes.told) == MAX_KV_BLOCKS
        assert state.prefixes.source == "partial"
        await server.tell(BlockRemoved([0], None), server.stored(LONG))
        await until(lambda: match(state, LONG) == 10)


async def test_a_flood_gets_its_share_of_the_loop_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of next to nothing: one message is taken, then the loop is others' for hours. Leaving does not wait."""
    monkeypatch.setattr(module, "MAX_LOOP_SHARE", 1e-9)
    async with kv_publisher() as server, Followed().follow(server) as state:
        await server.tell(server.stored(LONG))
        await until(lambda: match(state, LONG) == 10)
        await server.tell(server.stored(OTHER))
        with pytest.raises(AssertionError):
            await until(lambda: match(state, OTHER), 0.05)


async def test_a_server_that_is_away_or_silent_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do one that speaks something else, and one with a wrong label; all are left at once."""
    monkeypatch.setattr(module, "REPLAY_SECONDS", 0.05)

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

    followed = Followed()
    async with kv_publisher() as silent, stream_server(speak) as other:
        silent.silent, port = True, str(other)
        async with KvSubscriber(followed.scheduler, KvEventOptions()) as subscriber:
            endpoints = (
                followed.endpoint(silent),
                Endpoint("127.0.0.1:1", "away", {"kv-events-port": "1"}),
                Endpoint("[::1]:1", "garbage", {"kv-events-port": port}),
                Endpoint("127.0.0.1:3", "http", {"kv-events-port": port}),
                Endpoint("127.0.0.1:4", "wrong", {"kv-events-port": "http"}),
                Endpoint("nowhere.invalid:5", "name"),
            )
            subscriber.update(endpoints)
            state = followed.scheduler.server(endpoints[0])
            await until(lambda: silent.followers)
            await silent.tell(silent.stored(LONG))
            await until(lambda: match(state, LONG) == 10 and state.prefixes.source == "exact")
            assert [each.prefixes.source for each in followed.scheduler.servers[1:]] == ["believed"] * 4
            # It leaves its pool, and what it goes on to tell counts for nothing.
            subscriber.update(endpoints[1:])
            followed.scheduler.retain(endpoints[1:])
            await until(lambda: not silent.followers)
            subscriber.update(endpoints)
            await until(lambda: silent.followers)
            assert match(followed.scheduler.server(endpoints[0]), LONG) == 0
