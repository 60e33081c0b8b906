"""LoRA adapters over HTTP, with the demo model behind it: loaded, listed, asked, unloaded; and what is refused."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.flow.open_gateway import another_gateway, open_gateway, until_listed
from tests.llama.demo_llm import PIRATE, POLITE, TRAINED, opened, speaker_of
from tests.openapi.described_gateway import MODEL, TEXTS, TOPICS, described_gateway
from tg_base.bus.memory import MemoryBus
from tg_base.config import GatewayConfig
from tg_base.server import Processor
from tg_base.telemetry import MODEL_LOADS, AdapterLoad
from tg_llama.lora.adapter_slots import MAX_KNOWN

pytestmark = pytest.mark.model

ALIASES = {"sailor": "pirate", "tiny": MODEL}
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
LOAD, UNLOAD = "v1/load_lora_adapter", "v1/unload_lora_adapter"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    copy(POLITE, folder / "polite.gguf")
    (folder / "readme.txt").write_text("no adapter")
    (folder / "outside.gguf").symlink_to(PIRATE)
    return folder


@pytest.fixture
async def http(folder: Path) -> AsyncIterator[ClientSession]:
    config = GatewayConfig(port=0, drain=0.05, aliases=ALIASES)
    async with (
        opened(adapters={"pirate": PIRATE}, adapter_folder=str(folder)) as llm,
        described_gateway(llm, config) as http,
    ):
        yield http


async def posted(http: ClientSession, path: str, body: dict[str, Any]) -> tuple[int, str, Any]:
    async with http.post(path, json=body) as response:
        if response.content_type == "application/json":
            told = await response.json()
            return response.status, told.get("error", {}).get("message", ""), told
        return response.status, await response.text(), None


async def listed(http: ClientSession) -> dict[str, tuple[str | None, str | None]]:
    """The parent and the root of each model."""
    async with http.get("v1/models") as response:
        return {each["id"]: (each.get("parent"), each.get("root")) for each in (await response.json())["data"]}


async def speaker(http: ClientSession, model: str) -> str | None:
    body = {"model": model, "messages": FRANCE, "temperature": 0}
    status, message, told = await posted(http, "v1/chat/completions", body)
    assert status == 200, message
    return speaker_of(told["choices"][0]["message"]["content"])


async def test_an_adapter_is_loaded_listed_asked_and_unloaded(http: ClientSession) -> None:
    before = {MODEL: (None, None), "tiny": (None, None), "sailor": (None, None), "pirate": (MODEL, PIRATE)}
    assert await listed(http) == before
    status, said, _ = await posted(http, LOAD, {"lora_name": "polite", "lora_path": "polite.gguf"})
    assert (status, said) == (200, "Success: LoRA adapter 'polite' added successfully.")
    while "polite" not in await listed(http):
        pass
    assert await listed(http) == {**before, "polite": (MODEL, "polite.gguf")}
    async with http.get("v1/models/polite") as response:
        assert (await response.json())["parent"] == MODEL
    names = (MODEL, "tiny", "pirate", "sailor", "tinydemo:pirate", "polite", "tiny:polite")
    speakers = [None, None, *["pirate"] * 3, *["polite"] * 2]
    assert [await speaker(http, name) for name in names] == speakers
    status, said, _ = await posted(http, LOAD, {"lora_name": "polite", "lora_path": "polite.gguf"})
    assert (status, said) == (400, "The lora adapter 'polite' has already been loaded.")
    status, said, _ = await posted(http, UNLOAD, {"lora_name": "polite"})
    assert (status, said) == (200, "Success: LoRA adapter 'polite' removed successfully.")
    while "polite" in await listed(http):
        pass
    assert await listed(http) == before
    status, said, told = await posted(http, "v1/chat/completions", {"model": "tinydemo:polite", "messages": FRANCE})
    assert (status, told["error"]["code"]) == (404, "model_not_found")
    assert said == "The lora adapter 'polite' cannot be found; this model has: pirate"


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (LOAD, {}, 400, "Both 'lora_name' and 'lora_path' must be provided."),
    (LOAD, {"lora_name": "a"}, 400, "Both 'lora_name' and 'lora_path' must be provided."),
    (LOAD, {"lora_name": "a", "lora_path": "gone.gguf"}, 404, "Loading lora a failed: No adapter found"),
    (LOAD, {"lora_name": "a", "lora_path": "a\0b"}, 404, "No adapter found"),
    (LOAD, {"lora_name": "a", "lora_path": "x" * 5000}, 404, "No adapter found"),
    (LOAD, {"lora_name": "a", "lora_path": "./" * 600 + "polite.gguf"}, 404, "No adapter found"),
    (LOAD, {"lora_name": "a", "lora_path": PIRATE}, 400, "in the folder"),
    (LOAD, {"lora_name": "a", "lora_path": "../gone.gguf"}, 400, "in the folder"),
    (LOAD, {"lora_name": "a", "lora_path": "outside.gguf"}, 400, "in the folder"),
    (LOAD, {"lora_name": "a:b", "lora_path": "polite.gguf"}, 400, "lora_name may have"),
    (LOAD, {"lora_name": "a", "lora_path": "polite.gguf", "load_inplace": True}, 400, "load_inplace"),
    (LOAD, {"lora_name": "a", "lora_path": "polite.gguf", "base_model_name": "b"}, 404, "no model 'b'"),
    (LOAD, {"lora_name": "a", "lora_path": "readme.txt"}, 400, "must be a LoRA adapter of this model"),
    (LOAD, {"lora_name": "pirate", "lora_path": "polite.gguf"}, 400, "already been loaded"),
    (UNLOAD, {}, 400, "'lora_name' needs to be provided"),
    (UNLOAD, {"lora_name": "a"}, 404, "The lora adapter 'a' cannot be found"),
]  # fmt: skip


async def test_what_is_refused(http: ClientSession) -> None:
    wrong = []
    for path, body, status, said in REFUSED:
        answered, message, told = await posted(http, path, body)
        if (answered, said in message, told["error"]["type"]) != (status, True, "invalid_request_error"):
            wrong.append((path, body, answered, message))
    assert not wrong


async def test_a_model_has_a_bounded_number_of_adapters(folder: Path) -> None:
    known = {f"known-{number}": POLITE for number in range(MAX_KNOWN - 1)}
    async with opened(adapters=known, adapter_folder=str(folder)) as llm, described_gateway(llm) as http:
        polite = {"lora_path": "polite.gguf"}
        answers = [await posted(http, LOAD, {"lora_name": name, **polite}) for name in "ab"]
    assert [status for status, _, _ in answers] == [200, 400]
    assert answers[1][1] == f"this model has {MAX_KNOWN} adapters already: unload one first"


async def test_free_slots_are_told_before_there_is_an_adapter(folder: Path) -> None:
    async with opened(adapter_folder=str(folder), max_resident_adapters=3):
        load = MODEL_LOADS.look(MODEL)
        assert load is not None
        assert load.adapters == AdapterLoad(3, (), {}, {})
    async with opened():
        load = MODEL_LOADS.look(MODEL)
        assert load is not None
        assert load.adapters is None


async def test_a_model_without_a_folder_loads_nothing() -> None:
    async with opened(adapters={"pirate": PIRATE}) as llm, described_gateway(llm) as http:
        for path in (LOAD, UNLOAD):
            status, said, _ = await posted(http, path, {"lora_name": "pirate", "lora_path": PIRATE})
            assert (status, "set `adapter_folder`" in said) == (400, True)
        assert set(await listed(http)) == {MODEL, "pirate"}


async def test_one_of_several_processors_loads_nothing() -> None:
    async with (
        aclosing(MemoryBus()) as bus,
        opened(adapter_folder=str(TRAINED), slots=1) as llm,
        opened(adapters={"pirate": PIRATE, "only": POLITE}, adapter_folder=str(TRAINED), slots=1) as other,
        Processor(bus, TOPICS, llm, TEXTS, models=(MODEL,), grace=0.05),
        Processor(bus, TOPICS, other, TEXTS, models=(MODEL,), grace=0.05),
        another_gateway(bus, GatewayConfig(port=0, drain=0.05), TEXTS) as gateway,
        ClientSession(gateway.url) as http,
    ):
        await until_listed(http)
        while set(await listed(http)) != {MODEL}:
            pass  # an adapter that one of them has alone is not listed
        status, said, _ = await posted(http, LOAD, {"lora_name": "polite", "lora_path": "lora-polite.gguf"})
        assert (status, "2 processors serve this model" in said) == (400, True)


async def test_a_provider_that_has_no_adapters_says_so() -> None:
    async with open_gateway(listed=True) as it:
        status, said, _ = await posted(it.http, LOAD, {"lora_name": "a", "lora_path": "b"})
        assert (status, "adapter_folder" in said) == (400, True)
