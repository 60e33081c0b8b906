"""Requests that can be read, but not be written to the bus: the client is told, and nothing is a defect of ours."""

import json
from typing import Any

import pytest

from tests.fakes.messages_llm import MessagesLlm
from tests.flow.open_gateway import CONFIG, QUICK, TEXTS, open_gateway
from tests.flow.raw_http import raw_connection
from tg_base.client import Requestor
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest

BODY = json.dumps({"model": "counting", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}).encode()


def nest(depth: int) -> dict[str, Any]:
    """A schema of so many levels."""
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"not": inner}
    return inner


@pytest.mark.parametrize(
    ("fields", "says"), [({"schema": nest(5000)}, "nested too deep"), ({"user": "\ud800"}, "not UTF-8")]
)
async def test_a_requestor_refuses_them(fields: dict[str, Any], says: str) -> None:
    async with open_gateway(timing=QUICK) as it, Requestor(it.bus, CONFIG.topics, timing=QUICK) as requestor:
        with pytest.raises(BadRequest, match=says):
            async with requestor.stream(TEXTS[0], TextCompletionRequest(prompt="hi", **fields), timeout=1):
                pytest.fail("it was asked")


async def test_a_header_that_is_no_text_is_a_bad_request() -> None:
    async with open_gateway(instead=MessagesLlm(["ok"]), timing=QUICK, listed=True) as it:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nanthropic-beta: \xff\r\n"
        async with raw_connection(it.address) as raw:
            raw.send(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(BODY), BODY))
            assert await raw.until(b"\r\n") == b"HTTP/1.1 400 Bad Request\r\n"
