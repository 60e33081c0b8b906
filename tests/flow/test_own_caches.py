"""Callers with different keys share no cached prompt: how many tokens were cached would tell what others have asked."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.vllm_token_server import FIRST, VllmTokenServer
from tests.flow.agent_dialog import pipeline
from tests.flow.open_gateway import CONFIG, QUEUES, TEXTS, Opened, open_gateway
from tests.flow.test_vllm_tokens import asked as scored
from tests.flow.test_vllm_tokens import opened as vllm
from tests.llama.demo_llm import asked, opened, whole
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ApiKey, Config, GatewayConfig
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.llm import LlmChunk
from tg_base.llm.prepared_request import PreparedRequest, prepare_request
from tg_base.server import Processor
from tg_base.telemetry import trace
from tg_flow.prompt import PromptService, Templates
from tg_flow.providers.openai import Vllm
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_flow.providers.registry import load_provider
from tg_schema import PromptRequest, TextCompletionRequest
from tg_schema.text_completion import Foreign

SECRET = "The secret of the house is a blue door behind the old mill, which only Anna may open at night. " * 3
TOKENS = {"a": "anna", "a2": "anna", "b": "bert"}
"""Tokens, and the customers whose they are: one has two."""

SALT = load_provider("vllm").defaults["salt_field"]


def keys() -> tuple[ApiKey, ...]:
    return tuple(ApiKey(name=name, sha256=hashlib.sha256(token.encode()).hexdigest()) for token, name in TOKENS.items())


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(opened(slots=3, context=1024))
        config = GatewayConfig(port=0, drain=0.05, keys=keys())
        yield await stack.enter_async_context(open_gateway(config, instead=service))


async def cached(it: Opened, token: str, *, door: str = "http", system: str = SECRET) -> int:
    """How many of its prompt's tokens a caller is told to have been cached."""
    headers = {"Authorization": f"Bearer {token}"}
    request: dict[str, Any] = {"system": system, "prompt": "Hi.", "sampling": {"max_tokens": 2, "temperature": 0}}
    if door == "socket":
        async with it.http.ws_connect("/api/v1/socket", headers=headers) as socket:
            await socket.send_json({"id": 1, "service": "text-completion", "request": request})
            answer = (await socket.receive_json(timeout=30))["response"]
    else:
        async with it.http.post("/api/v1/text-completion", json=request, headers=headers) as response:
            answer = await response.json()
    return int(answer.get("cached_token") or 0)


@pytest.mark.model
async def test_a_key_profits_from_its_own_prompts_alone(it: Opened) -> None:
    assert await cached(it, "a") == 0
    own = await cached(it, "a")
    assert own > 50
    assert await cached(it, "a2") == own, "tokens of one name are one customer"
    assert await cached(it, "b") == 0
    assert await cached(it, "b", door="socket") == own, "by whichever transport it comes"
    # While several run, too: nobody follows the prompt of another, and everybody has his own again.
    other = "Another text that nobody has asked about so far, of some length. " * 4
    told = await asyncio.gather(*(cached(it, token, system=other) for token in ("a", "b")))
    # What the template begins with may be cached of their own prompts before; of the text itself nothing is.
    assert max(told) < 8


@pytest.mark.model
async def test_without_keys_all_share() -> None:
    async with opened(slots=2) as service:
        request = asked("Hi.", system=SECRET, max_tokens=2, temperature=0)
        first, second = await whole(service, request), await whole(service, request)
    assert (first.cached_token, second.cached_token) == (0, (first.in_token or 0) - 1)


@pytest.mark.model
async def test_a_flows_own_system_prompt_is_each_callers_alone() -> None:
    """No configuration shares it, so that nobody learns whether others have used it."""
    templates = PromptsConfig(system=SECRET, templates={"ask": TemplateConfig(prompt="Hi.")})
    async with AsyncExitStack() as stack:
        llm, bus = await stack.enter_async_context(opened(slots=3, context=1024)), MemoryBus()
        stack.push_async_callback(bus.aclose)
        for each in (
            Processor(bus, CONFIG.topics, llm, TEXTS, grace=0.05),
            requestor := Requestor(bus, CONFIG.topics, queues=QUEUES),
        ):
            await stack.enter_async_context(each)
        service = PromptService(Client(requestor, TEXTS[0]), Templates.of(Config(prompts=templates)))
        stack.push_async_callback(service.aclose)
        evaluated = []
        for caller in ("c1", "c1", "c2", "c2"):
            before = llm.engine.stats().prompt_tokens
            trace.name_caller(caller)
            assert [record async for record in service.on_request(PromptRequest("ask"))]
            evaluated.append(llm.engine.stats().prompt_tokens - before)
    assert evaluated[0] == evaluated[2] > 50 * evaluated[1]
    assert evaluated[1] == evaluated[3]


class Listening(ScriptedLlm):
    """It notes for whom it is asked."""

    def __init__(self) -> None:
        super().__init__("Final Answer: 5")
        self.callers: list[str | None] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.callers.append(trace.find_caller())
        async for chunk in super().generate_content_stream(request):
            yield chunk


async def test_the_model_of_an_agent_is_asked_for_the_same_caller(tmp_path: Path) -> None:
    llm = Listening()
    async with pipeline(llm, tmp_path) as it:
        for caller in ("c1", "c2", None):
            trace.name_caller(caller)
            assert (await it.tell()).answer
    assert list(dict.fromkeys(llm.callers)) == ["c1", "c2", None]


def sent(options: OpenAiOptions, request: TextCompletionRequest, caller: str | None) -> dict[str, Any]:
    trace.name_caller(caller)
    body: dict[str, Any] = msgspec.json.decode(Vllm("m", options, None).body(request))  # type: ignore[arg-type]
    return body


def test_a_server_is_told_to_keep_callers_apart() -> None:
    options = OpenAiOptions(salt_field=SALT, hint_fields={"cache_key": "prompt_cache_key"})
    request = TextCompletionRequest(prompt="Hi.", cache_key="k")
    of_one, of_other, of_nobody = (sent(options, request, caller) for caller in ("c1", "c2", None))
    assert (of_one["cache_salt"], of_other["cache_salt"]) == ("c1", "c2")
    assert len({of_one["prompt_cache_key"], of_other["prompt_cache_key"], "k"}) == 3
    assert (of_nobody["prompt_cache_key"], "cache_salt" in of_nobody) == ("k", False)


@pytest.mark.parametrize("caller", ["c1", None])
def test_no_client_chooses_whose_cache_it_shares(caller: str | None) -> None:
    """The fields that pass as they came are none that the configuration names."""
    options = OpenAiOptions(
        salt_field=SALT, hint_fields={"cache_key": "prompt_cache_key"}, extra_body={"service_tier": "flex"}
    )
    given = {SALT: "c2", "prompt_cache_key": "k", "service_tier": "priority", "verbosity": "low"}
    trace.name_caller(caller)
    written = Vllm("m", options, None).body(TextCompletionRequest(prompt="Hi.", foreign=Foreign("openai", given)))  # type: ignore[arg-type]
    members = msgspec.json.decode(written)
    assert {name: members.get(name) for name in given} == {
        SALT: caller, "prompt_cache_key": None, "service_tier": "flex", "verbosity": "low"
    }  # fmt: skip


async def test_a_score_is_asked_for_its_caller() -> None:
    async with VllmTokenServer.running() as server, vllm(server) as service:
        for caller in ("c1", "c2", None):
            trace.name_caller(caller)
            await scored(service, "score", prompt_ids=(FIRST, FIRST + 1), scored=(FIRST + 2,))
    assert [body.cache_salt for body in server.bodies] == ["c1", "c2", None]


def test_a_request_that_a_worker_process_writes_has_its_caller() -> None:
    options = OpenAiOptions(salt_field=SALT, base_url="http://localhost:1/v1", key_needed=False)
    body = msgspec.json.encode(TextCompletionRequest(prompt="Hi."))
    for caller in ("c1", None):
        request = prepare_request(Vllm, "m", options, body, caller)
        assert isinstance(request, PreparedRequest)
        assert ('"cache_salt":"c1"' in str(request)) == (caller == "c1")
