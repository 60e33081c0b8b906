"""Which groups of tools a key may name, on every door: `group` is the client's wish, and no permission."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.flow.open_agent import OpenedAgent, open_agent
from tg_base.config import ApiKey, GatewayConfig
from tg_base.config.reader import DEFAULT_FILE, parse_config
from tg_schema.errors import BadRequest

DOORS = ("whole", "events", "socket")
GROUPS: dict[str, tuple[str, ...] | None] = {
    "sales": ("sales", "default"),
    "support": ("support",),
    "nothing": (),
    "all": ("*",),
    "unlimited": None,
}


@pytest.fixture
async def it() -> AsyncIterator[OpenedAgent]:
    keys = tuple(
        ApiKey(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), groups=groups)
        for name, groups in GROUPS.items()
    )
    async with open_agent(config=GatewayConfig(port=0, drain=0.05, keys=keys)) as opened:
        yield opened


async def asked(it: OpenedAgent, door: str, key: str, group: list[str] | None) -> tuple[str, str]:
    """The type of the error and its message; ("ok", "") where the agent was asked."""
    request: dict[str, Any] = {"question": "2 + 3?", "streaming": door == "events"}
    request |= {} if group is None else {"group": group}
    headers = {"Authorization": f"Bearer {key}"}
    if door == "socket":
        async with it.http.ws_connect("/api/v1/socket", headers=headers) as socket:
            await socket.send_json({"id": 1, "service": "agent", "request": request})
            frame = await socket.receive_json(timeout=30)
        return (frame["error"]["type"], frame["error"]["message"]) if "error" in frame else ("ok", "")
    async with it.http.post("/api/v1/agent", json=request, headers=headers) as response:
        if response.status == 200:
            return "ok", ""
        error = (await response.json())["error"]
    assert response.status == {"access-denied": 403}[error["type"]]
    return error["type"], error["message"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("sales", None),
        ("sales", ["sales"]),
        ("sales", ["sales", "default"]),
        ("sales", []),
        ("support", ["support"]),
        ("nothing", []),
        ("all", ["support"]),
        ("all", ["*"]),
        ("unlimited", None),
        ("unlimited", ["support", "*"]),
    ],
)
async def test_what_a_key_may_ask(it: OpenedAgent, door: str, key: str, group: list[str] | None) -> None:
    assert await asked(it, door, key, group) == ("ok", "")
    (request,) = it.agent.requests
    assert request.group == (None if group is None else tuple(group))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("key", "group", "reason"),
    [
        ("sales", ["support"], '"support"; name sales or default in `group`'),
        ("sales", ["sales", "support"], '"support"; name sales or default in `group`'),
        ("sales", ["*"], '"*"; name sales or default in `group`'),
        ("support", None, '"default"; name support in `group`'),
        ("nothing", None, '"default"; it may use none'),
        ("nothing", ["x" * 500], f'"{"x" * 64}"; it may use none'),
    ],
)
async def test_what_it_may_not_ask(it: OpenedAgent, door: str, key: str, group: list[str] | None, reason: str) -> None:
    sentence = f"this key may not use the tools of the group {reason}"
    assert await asked(it, door, key, group) == ("access-denied", sentence)
    assert it.agent.requests == []


def test_keys_of_one_name_have_the_same_groups() -> None:
    digests = (hashlib.sha256(token).hexdigest() for token in (b"1", b"2"))
    first, second = (f'[[gateway.keys]]\nname = "a"\nsha256 = "{digest}"\n' for digest in digests)
    config = parse_config(first + 'groups = ["sales"]\n', DEFAULT_FILE)
    assert config.gateway.keys[0].groups == ("sales",)
    with pytest.raises(BadRequest, match='keys named "a" share their limits; give each the same groups'):
        parse_config(first + 'groups = ["sales"]\n' + second, DEFAULT_FILE)
