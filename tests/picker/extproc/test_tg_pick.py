"""`tg-pick` as a user runs it: a process beside a real Envoy, fake model servers, and the SDKs as clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import anthropic
import msgspec
import openai
import pytest
import pytest_asyncio

from tests.fakes.pool_member import PoolMember, pool_member
from tests.flow.command import SCRIPTS
from tests.free_port import free_port
from tests.picker.extproc.envoy_server import envoy

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

RESOURCES = """\
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{ name: small }}
spec:
  selector: {{ matchLabels: {{ app: small }} }}
  targetPorts: [{{ number: 8000 }}]
---
apiVersion: inference.x-k8s.io/v1alpha1
kind: LLMRoute
metadata: {{ name: assistant }}
spec:
  parentRefs: [{{ name: ai-gw }}]
  backendRefs: [{{ name: small }}]
  adapter: {{ name: {adapter}, priority: 100 }}
"""
ENDPOINTS = "endpoints:\n"


class Pool:
    """The files of a picker, and where its page is."""

    def __init__(self, folder: Path, members: list[PoolMember]) -> None:
        self.folder = folder
        self.page = ""
        self.write("sentiment")
        rows = (
            f"  - {{ name: s{at}, address: 127.0.0.1, port: '{member.port}', labels: {{ app: small }} }}\n"
            for at, member in enumerate(members)
        )
        (folder / "endpoints.yaml").write_text(ENDPOINTS + "".join(rows), "utf-8")
        (folder / "pick.toml").write_text(
            'resources = ["routes.yaml"]\nendpoint_files = ["endpoints.yaml"]\nfallbacks = 1\n'
            'adapter_source = "/srv/{adapter}"\n',
            "utf-8",
        )

    def write(self, adapter: str) -> None:
        (self.folder / "routes.yaml").write_text(RESOURCES.format(adapter=adapter), "utf-8")


World = tuple[str, list[PoolMember], Pool]


@asynccontextmanager
async def tg_pick(folder: Path, port: int) -> AsyncIterator[str]:
    """Yields where its page of model servers is."""
    listen = ("--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0")
    command = (SCRIPTS / "tg-pick", "--config", folder / "pick.toml", *listen)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            said = (await process.stdout.readline()).decode()
            assert "picking at" in said
        yield said.rpartition(" ")[2].strip()
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(60):
            await process.wait()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("pick")
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(pool_member()) for _ in range(2)]
        pool, port = Pool(folder, members), free_port()
        pool.page = await stack.enter_async_context(tg_pick(folder, port))
        ports = [*(member.port for member in members), free_port()]
        yield await stack.enter_async_context(envoy(folder, "duplex", port, ports)), members, pool


def _asked(member: PoolMember) -> int:
    """Requests of clients: not those to load an adapter."""
    return sum("lora_name" not in body for body in member.asked)


async def test_the_sdks_reach_the_adapter(world: World) -> None:
    url, members, _ = world
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="sentiment", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])
        assert text in {f"I am {member.port}" for member in members}
        with pytest.raises(openai.NotFoundError, match="no route"):
            await client.chat.completions.create(model="nobody", messages=[])
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as claude:
        with pytest.raises(anthropic.NotFoundError, match="no route"):
            await claude.messages.create(model="nobody", max_tokens=1, messages=[{"role": "user", "content": "hi"}])


async def test_an_adapter_stays_where_it_is(world: World) -> None:
    url, members, _ = world
    before = [_asked(member) for member in members]
    async with aiohttp.ClientSession() as session:
        for at in range(6):
            body = {"model": "sentiment", "messages": [{"role": "user", "content": f"{at}"}]}
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200
    assert sorted(_asked(member) - had for member, had in zip(members, before, strict=True)) == [0, 6]


async def test_it_shows_why_requests_went_where_they_did(world: World) -> None:
    url, members, pool = world
    async with aiohttp.ClientSession() as session:
        body = {"model": "sentiment", "messages": [{"role": "user", "content": "a secret"}]}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers={"x-request-id": "r-7"}) as answer:
            assert answer.status == 200
        async with session.get(pool.page) as answer:
            text = await answer.text()
        [picker] = msgspec.json.decode(text)["pickers"]
        assert {server["address"] for server in picker["pools"][0]["servers"]} == {each.address for each in members}
        newest = picker["decisions"][0]
        assert (newest["request"], newest["model"], newest["adapter"]) == ("r-7", "sentiment", "sentiment")
        assert "chosen among 2 servers" in newest["reasons"]
        assert "a secret" not in text
        async with session.get(pool.page, headers={"Accept": "text/html"}) as answer:
            assert "chosen among 2 servers" in await answer.text()
        async with session.get(pool.page.replace("/instances", "/metrics")) as answer:
            assert 'llm_d_epp_ready_endpoints{name="small"} 2.0' in await answer.text()


async def test_a_route_is_edited_while_it_runs(world: World) -> None:
    url, members, pool = world
    async with aiohttp.ClientSession() as session:

        async def status(model: str) -> int:
            async with session.post(f"{url}/v1/chat/completions", json={"model": model, "messages": []}) as answer:
                return answer.status

        pool.write("satire")
        async with asyncio.timeout(30):
            # Each look takes a turn of the server's loop; nothing tells a client that an edit is in force.
            while await status("satire") != 200:
                pass
        assert await status("sentiment") == 404
        pool.write("sentiment")
    # Nobody had it, so that a server was told to load it first.
    loaded = [body for member in members for body in member.asked if "lora_name" in body]
    assert {"lora_name": "satire", "lora_path": "/srv/satire"} in loaded


async def test_two_pickers_listen_on_one_address(world: World) -> None:
    _, _, pool = world
    port = free_port()
    async with tg_pick(pool.folder, port), tg_pick(pool.folder, port):
        pass
