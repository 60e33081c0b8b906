"""LMTP: whatever a client sends, its other streams go on, and its socket stays open."""

import asyncio
import json

from aiohttp import WSMsgType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doors.open_lmtp import MODEL, open_lmtp
from tests.fakes.token_llm import END, TokenLlm

OURS = 10**6
"""Stream ids from here on are the test's own."""
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(MODEL),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.just("1"), inner, max_size=4),
    max_leaves=8,
)
FIELD = st.sampled_from(
    [
        *(
            "stream_id",
            "model",
            "prompt",
            "scored",
            "max_tokens",
            "logit_bias",
            "mode",
            "buffer_id",
            "append",
            "accept",
        ),
        *("request_key", "after_seq"),
    ]
)
RIGHT = {"stream_id": 5, "model": MODEL, "prompt": [1], "scored": [2], "buffer_id": 1, "accept": []}
"""A message that every type takes, before some of it is replaced."""
MESSAGE = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda kind, fields: f"{kind} {json.dumps(RIGHT | fields)}".encode(),
        st.sampled_from(["GENERATE", "SCORE", "MODEL_INFO", "HELLO", "CANCEL", "BUFFER", "RESUME", "TOKEN", ""]),
        st.dictionaries(FIELD, VALUE, max_size=4),
    ),
)


async def test_any_bytes_disturb_no_other_stream() -> None:
    sent: list[list[tuple[bytes, bool]]] = []

    @settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(MESSAGE, st.booleans()), min_size=1, max_size=5))
    def collect(messages: list[tuple[bytes, bool]]) -> None:
        sent.append(messages)

    await asyncio.get_running_loop().run_in_executor(None, collect)
    async with open_lmtp(TokenLlm()) as (_, client):
        for number, messages in enumerate(sent, OURS):
            await client.generate(number, [72] * 5)
            for payload, binary in messages:
                await client.socket.send_frame(payload, WSMsgType.BINARY if binary else WSMsgType.TEXT)
            tokens: list[int] = []
            while not tokens or tokens[-1] != END:
                _, items = await client.read()
                tokens += [each["token"] for each in items if each.get("stream_id") == number]
            assert tokens == [72] * 5 + [END]
