"""`tg-serve --provider NAME --check`: one smallest real request, and what came of it."""

import re
from collections.abc import AsyncIterator

import pytest

from tests.fakes.openai_chat_server import CompatibleServer, OpenAiChatServer
from tests.fakes.plan import Fault, Plan
from tests.flow.command import ran
from tg_flow.providers import check_provider
from tg_flow.providers.check import MAX_TOKENS
from tg_schema import ModelInfo, TgError
from tg_schema.errors import NotFound, ProviderAuth, RateLimited, Unavailable

MODEL = CompatibleServer.model


@pytest.fixture
async def server() -> AsyncIterator[CompatibleServer]:
    async with CompatibleServer.running() as running:
        yield running


async def test_a_model_is_asked_for_a_few_tokens(server: CompatibleServer) -> None:
    line = await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "tries": 9})
    assert re.fullmatch(
        rf"vllm: {MODEL}-2026-01-01 answered; first token after \d\.\d\d s, all after \d\.\d\d s; "
        "tokens: 11 in, 7 out; finish: stop",
        line,
    )
    (exchange,) = server.exchanges
    assert exchange.asked is not None
    assert exchange.asked.sampling.max_tokens == MAX_TOKENS


async def test_counts_that_nobody_told_are_unknown(server: CompatibleServer) -> None:
    server.play(Plan(counts=None))
    line = await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "usage_patience": 0.1})
    assert "tokens: unknown in, unknown out" in line


async def test_without_a_model_the_list_is_told(server: CompatibleServer) -> None:
    server.play(Plan(models=tuple(ModelInfo(f"m{number}") for number in range(13))))
    line = await check_provider("vllm", None, {"base_url": f"{server.url}/v1"})
    assert line.startswith("vllm: answers, and has these models: m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 3 more;")
    assert server.exchanges == []


async def test_an_only_model_is_asked(server: CompatibleServer) -> None:
    server.play(Plan(models=(ModelInfo(MODEL),)))
    assert f"{MODEL}-2026-01-01 answered" in await check_provider("vllm", None, {"base_url": f"{server.url}/v1"})
    assert len(server.exchanges) == 1


@pytest.mark.parametrize("kind", [ProviderAuth, RateLimited, NotFound, Unavailable])
async def test_an_error_keeps_its_kind_and_is_not_tried_again(server: CompatibleServer, kind: type[TgError]) -> None:
    server.play(Plan(fault=Fault.REFUSE, error=kind))
    with pytest.raises(kind, match=f"^vllm: {kind.type}: "):
        await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "tries": 9})
    assert len(server.exchanges) == 1


async def test_the_command(server: CompatibleServer) -> None:
    url = f"{server.url}/v1"
    done = await ran("tg-serve", "--check", "--provider", "vllm", "--base-url", url, "--model", MODEL)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert f"text-completion ({MODEL} of vllm)" in lines[0]
    assert lines[-1].startswith(f"vllm: {MODEL}-2026-01-01 answered; first token after ")
    done = await ran("tg-serve", "--check", "--provider", "vllm", "--base-url", url)
    assert done.out.startswith("vllm: answers, and has these models: fake-model, fake-other; to test one")
    assert done.out.count("\n") == 1


async def test_the_command_fails_with_the_word_for_the_error() -> None:
    async with OpenAiChatServer.running() as server:
        options = ["--provider", "openai", "--base-url", f"{server.url}/v1", "-o", "key_variable=", "--model", MODEL]
        done = await ran("tg-serve", "--check", *options)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith("openai: provider-auth: the provider refused the processor's key")
