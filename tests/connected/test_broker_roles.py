"""Two roles as docs/operations.md gives them: who asks and who answers may do that, and not each other's work."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_security import BrokerSecurity
from tests.fakes.counting_llm import CountingLlm
from tests.pulsar_or_skip import pulsar_or_skip
from tests.pulsar_server import PulsarServer
from tg_base.bus import BusOptions, open_bus
from tg_base.client import LlmClient, Requestor
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


class Secured:
    """The broker, and what a client of a role writes into its configuration."""

    def __init__(self, server: PulsarServer, security: BrokerSecurity, folder: Path) -> None:
        self.url = server.tls_url
        self._admin = server.admin_url
        self._security = security
        self._folder = folder

    def options(self, role: str) -> BusOptions:
        token = self._folder / f"{role}.token"
        token.write_text(self._security.token(role), "utf-8")
        return BusOptions(token_file=token, trust_certs=self._security.certificate)

    def grant(self, namespace: str, role: str, actions: list[str]) -> None:
        path = f"{self._admin}/admin/v2/namespaces/{namespace}/permissions/{role}"
        request = urllib.request.Request(path, json.dumps(actions).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {self._security.token('admin')}")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            assert answer.status in {200, 204}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("roles")
    security = BrokerSecurity(folder)
    with pulsar_or_skip(security.settings, security.token("admin")) as server:
        secured = Secured(server, security, folder)
        for namespace, roles in GRANTS.items():
            for role, actions in roles.items():
                secured.grant(namespace, role, actions)
        yield secured


async def test_both_roles_together_answer(secured: Secured) -> None:
    async with (
        open_bus(secured.url, secured.options("asker")) as asking,
        open_bus(secured.url, secured.options("answerer")) as answering,
        Processor(answering, TOPICS, CountingLlm(), (ROUTE,)),
        Requestor(asking, TOPICS) as requestor,
    ):
        await asking.ping()
        assert await LlmClient(requestor, ROUTE).request("", "3", streaming=True) == "0 1 2 "


async def test_who_asks_cannot_read_what_others_ask(secured: Secured) -> None:
    async with open_bus(secured.url, secured.options("asker")) as bus:
        with pytest.raises(BusError, match="grant our role the action consume on it"):
            async with bus.subscribe(REQUESTS, "tg-text-completion"):
                pass


async def test_who_answers_cannot_ask(secured: Secured) -> None:
    async with open_bus(secured.url, secured.options("answerer")) as bus:
        with pytest.raises(BusError, match="grant our role the action produce on it"):
            await bus.publish(REQUESTS, b"{}", {"id": "1"})
        await bus.ping(REQUESTS)
        # As `/ready` and `--check` ask, without a message.
        with pytest.raises(BusError, match="grant our role the action produce on it"):
            await bus.ping(REQUESTS, produce=True)


async def test_a_role_without_a_grant_can_do_nothing(secured: Secured) -> None:
    async with open_bus(secured.url, secured.options("stranger")) as bus:
        for topic in (REQUESTS, TOPICS.presence):
            with pytest.raises(BusError):
                await bus.publish(topic, b"{}", {})


async def test_a_check_finds_that_a_role_may_only_consume(secured: Secured, tmp_path: Path) -> None:
    """Without a message; each request of such a gateway would be refused."""
    file = tmp_path / "tokengrid.toml"
    options = secured.options("answerer")
    text = f'[bus]\nurl = "{secured.url}"\nnamespace = "tg/request"\n[bus.options]\n'
    text += f'token_file = "{options.token_file}"\ntrust_certs = "{options.trust_certs}"\n'
    text += '[models.m]\nprovider = "llama-cpp"\n[flows.default]\ntext-completion = { model = "m" }\n'
    file.write_text(text, "utf-8")
    _, found = await inspect(ServeOptions(file=file))
    assert len(found) == 1
    assert "grant our role the action produce on it" in found[0]
