"""Cached prompts: callers with different keys share none, and requests that begin alike go where they began."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.doors.open_lmtp import Lmtp, is_final
from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.vllm_token_server import FIRST, VllmTokenServer
from tests.flow.agent_dialog import pipeline
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, QUEUES, TEXTS, Opened, open_gateway, until_listed
from tests.flow.test_vllm import asked as scored
from tests.flow.test_vllm import opened as vllm
from tests.llama.demo_llm import STORY, asked, opened, whole
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ApiKey, Config, GatewayConfig, TextCompletionConfig
from tg_base.config.model import PromptsConfig, TemplateConfig
from tg_base.llm import LlmChunk
from tg_base.llm.prepared_request import PreparedRequest, prepare_request
from tg_base.server import Processor
from tg_base.telemetry import trace
from tg_flow.prompt import PromptService, Templates
from tg_flow.providers.openai import Vllm
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_flow.providers.registry import load_provider
from tg_gateway.app import Gateway
from tg_llama.provider import LlamaCpp
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


WARM_CONFIG = Config(flows={"default": {"text-completion": TextCompletionConfig(model="tinydemo")}})
ROUTES = WARM_CONFIG.routes("text-completion")
LONG = "You are a helpful assistant. " * 8
ROUNDS = 4


@dataclass
class Pair:
    """The gateway's client, and the two models."""

    http: ClientSession
    models: list[LlamaCpp]

    @property
    def evaluated(self) -> list[int]:
        """Tokens of prompts that each has evaluated, the larger number first."""
        return sorted((model.engine.stats().prompt_tokens for model in self.models), reverse=True)


@asynccontextmanager
async def open_pair() -> AsyncIterator[Pair]:
    """As two machines serve one queue, in one process."""
    bus = MemoryBus()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.aclose)
        models = [await stack.enter_async_context(opened(slots=2)) for _ in range(2)]
        for model in models:
            processor = Processor(bus, WARM_CONFIG.topics, model, ROUTES, models=("tinydemo",), grace=0.05)
            await stack.enter_async_context(processor)
        queues = tuple(route.request for route in ROUTES)
        requestor = await stack.enter_async_context(Requestor(bus, WARM_CONFIG.topics, queues=queues))
        gateway = await stack.enter_async_context(Gateway(ON_ANY_PORT, requestor, ROUTES))
        http = await stack.enter_async_context(ClientSession(gateway.url))
        await until_listed(http)
        await until(lambda: len(requestor.presence.serving(queues[0])) == len(models))
        yield Pair(http, models)


async def test_a_chain_of_buffers_stays_with_the_process_that_has_it() -> None:
    async with open_pair() as it, it.http.ws_connect("/lmtp") as socket:
        client = Lmtp(socket)
        prompt = it.models[0].engine.model.tokenize(LONG, special=False)
        await client.generate(0, prompt, model="tinydemo", buffer_id="b", max_tokens=4)
        await _end(client)
        # Each goes on from the answer of the one before it.
        for number in range(1, ROUNDS):
            named: dict[str, Any] = {"buffer": "b", "append": prompt[:5]}
            await client.generate(number, named, model="tinydemo", buffer_id="b", max_tokens=4)
            await _end(client)
        most = len(prompt) + (ROUNDS - 1) * (5 + 2)
        assert it.evaluated[1] == 0
        assert len(prompt) <= it.evaluated[0] <= most


async def _end(client: Lmtp) -> None:
    while not any(kind == "TOKEN" and is_final(items[-1]) for kind, items in [await client.read()]):
        pass


@pytest.mark.parametrize(
    ("path", "body", "details"),
    [
        (
            "v1/chat/completions",
            {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": STORY}], "max_tokens": 4},
            "prompt_tokens_details",
        ),
        ("v1/completions", {"prompt": LONG + STORY, "max_tokens": 4}, "prompt_tokens_details"),
        ("v1/responses", {"instructions": LONG, "input": STORY, "max_output_tokens": 16}, "input_tokens_details"),
    ],
)
async def test_a_cache_key_of_openai_s_does_the_same(path: str, body: dict[str, Any], details: str) -> None:
    async with open_pair() as it:
        cached = []
        for _ in range(ROUNDS):
            async with it.http.post(path, json={"model": "tinydemo", "prompt_cache_key": "k"} | body) as response:
                assert response.status == 200, await response.text()
                usage = (await response.json())["usage"]
            cached.append(usage[details]["cached_tokens"])
            prompt = usage.get("prompt_tokens") or usage["input_tokens"]
        # All but the last token, which chooses the first of the answer.
        assert cached[1:] == [prompt - 1] * (ROUNDS - 1)
        assert it.evaluated == [prompt - cached[0] + ROUNDS - 1, 0]
