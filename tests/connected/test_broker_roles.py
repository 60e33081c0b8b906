"""Two roles as docs/operations.md gives them: who asks and who answers may do that, and not each other's work."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.broker_security import SecuredBroker
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.typed_clients import LlmClient
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import BusError
from tg_schema.topics import Topics
from tg_serve.launcher import inspect
from tg_serve.options import ServeOptions

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TOPICS = Topics("tg/flow")
REQUESTS = "persistent://tg/request/completions"
ROUTE = Route("default", TEXT_COMPLETION, REQUESTS, TOPICS.response("default", "text-completion"))
GRANTS = {
    "tg/request": {"asker": ["produce"], "answerer": ["consume"]},
    "tg/flow": {"asker": ["produce", "consume"], "answerer": ["produce", "consume"]},
}


@pytest.fixture(scope="module")
def granted(secured: SecuredBroker) -> SecuredBroker:
    """The broker, whose roles have their rights."""
    for namespace, roles in GRANTS.items():
        for role, actions in roles.items():
            grant(secured, namespace, role, actions)
    return secured


def grant(secured: SecuredBroker, namespace: str, role: str, actions: list[str]) -> None:
    path = f"{secured.server.admin_url}/admin/v2/namespaces/{namespace}/permissions/{role}"
    request = urllib.request.Request(path, json.dumps(actions).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {secured.security.token('admin')}")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        assert answer.status in {200, 204}


async def test_both_roles_together_answer(granted: SecuredBroker) -> None:
    async with (
        open_bus(granted.server.tls_url, granted.options("asker")) as asking,
        open_bus(granted.server.tls_url, granted.options("answerer")) as answering,
        Processor(answering, TOPICS, CountingLlm(), (ROUTE,)),
        Requestor(asking, TOPICS) as requestor,
    ):
        await asking.ping()
        assert await LlmClient(requestor, ROUTE).request("", "3", streaming=True) == "0 1 2 "


async def test_who_asks_cannot_read_what_others_ask(granted: SecuredBroker) -> None:
    async with open_bus(granted.server.tls_url, granted.options("asker")) as bus:
        with pytest.raises(BusError, match="grant our role the action consume on it"):
            async with bus.subscribe(REQUESTS, "tg-text-completion"):
                pass


async def test_who_answers_cannot_ask(granted: SecuredBroker) -> None:
    async with open_bus(granted.server.tls_url, granted.options("answerer")) as bus:
        with pytest.raises(BusError, match="grant our role the action produce on it"):
            await bus.publish(REQUESTS, b"{}", {"id": "1"})
        await bus.ping(REQUESTS)
        # As `/ready` and `--check` ask, without a message.
        with pytest.raises(BusError, match="grant our role the action produce on it"):
            await bus.ping(REQUESTS, produce=True)


async def test_a_check_finds_that_a_role_may_only_consume(granted: SecuredBroker, tmp_path: Path) -> None:
    """Without a message; each request of such a gateway would be refused."""
    file = tmp_path / "tokengrid.toml"
    options = granted.options("answerer")
    text = f'[bus]\nurl = "{granted.server.tls_url}"\nnamespace = "tg/request"\n[bus.options]\n'
    text += f'token_file = "{options.token_file}"\ntrust_certs = "{options.trust_certs}"\n'
    text += '[models.m]\nprovider = "llama-cpp"\n[flows.default]\ntext-completion = { model = "m" }\n'
    file.write_text(text, "utf-8")
    _, found = await inspect(ServeOptions(file=file))
    assert len(found) == 1
    assert "grant our role the action produce on it" in found[0]
