"""Names, routes and flows that are edited while eight gateways serve: in force at all, and no stream is touched."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.flow.edited_models import OneWord
from tests.flow.served_gateways import config_of, gateways, text_of
from tests.flow.socket_frames import answer

pytestmark = pytest.mark.usefixtures("fresh_models")

NAMED = 'aliases = { nick = "m" }'
ROUTED = '[routes]\nr.models = ["m", "n"]\n'


async def test_aliases_and_routes_follow_the_file_at_all_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(ROUTED, NAMED)) as it, AsyncExitStack() as stack:
        assert [await it.say(name) for name in ("nick", "r")] == [{"old old"}] * 2
        streams = []
        for http in it.doors:
            for name in ("nick", "r"):
                body = {"model": name, "prompt": "wait", "streaming": True}
                response = await stack.enter_async_context(http.post("api/v1/text-completion", json=body))
                streams.append((response, await response.content.readuntil(b"\n\n")))
        socket = await stack.enter_async_context(it.doors[0].ws_connect("api/v1/socket"))
        it.edit(config_of('[routes]\nr.models = ["n", "m"]\n', 'aliases = { nick = "n", new = "r" }'))
        assert (await it.told("config.in_force"))["keys"] == [
            "gateway.aliases.nick", "gateway.aliases.new", "routes.r.models",
        ]  # fmt: skip
        assert [await it.say(name) for name in ("nick", "r", "new")] == [{"other other"}] * 3
        request = {"prompt": "x", "model": "nick"}
        told = await answer(socket, {"id": "later", "service": "text-completion", "request": request})
        assert told["response"]["response"] == "other other"
        assert await it.list_models() == {("m", "n", "r", "nick", "new")}
        OneWord.gate.set()
        assert {text_of(begun + await response.read()) for response, begun in streams} == {"old old"}


async def test_a_name_that_leads_nowhere_changes_nothing_at_any_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(tmp_path, monkeypatch, config_of(ROUTED, NAMED)) as it:
        for wrong, words in (
            (config_of(ROUTED, 'aliases = { nick = "lost" }'), 'no flow has the model "lost"; name one of them'),
            (config_of('[routes]\nr.models = ["s"]\ns.models = ["r"]\n', NAMED), "lead to each other in a circle"),
            (config_of("[routes]\nr.weights = { m = 0 }\n", NAMED), "routes.r.weights.m must be a number > 0"),
        ):
            it.edit(wrong)
            assert words in (await it.told("config.refused"))["reason"]
            assert [await it.say(name) for name in ("nick", "r")] == [{"old old"}] * 2
