"""Where a model comes from, and what is said when it does not come."""

import hashlib
import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from huggingface_hub.utils.logging import get_logger

from tests.fakes.hub_server import COMMIT, hub_server
from tests.llama.demo_llm import asked, text_of
from tg_flow.providers import open_provider
from tg_llama.core.model_file import model_file
from tg_llama.models import DEMO_MODEL
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema.errors import BadRequest, NotFound, Unavailable

SHA256 = "58146914b59c85713deb9bd0d345d3a7435635574b25c125526299601fa64fd9"


def test_the_packaged_model_is_the_one_that_the_tests_know() -> None:
    assert hashlib.sha256(DEMO_MODEL.read_bytes()).hexdigest() == SHA256
    assert model_file("") == DEMO_MODEL


def test_the_model_and_its_adapters_take_at_most_8_megabytes() -> None:
    trained = Path(__file__).parents[2] / "models/tinydemo"
    assert len(list(trained.glob("lora-*.gguf"))) == 2
    files = [DEMO_MODEL, *trained.glob("*.gguf"), *trained.glob("*.npz"), *trained.glob("*.json")]
    assert sum(file.stat().st_size for file in files) <= 8e6


def test_a_path_is_itself() -> None:
    assert model_file(str(DEMO_MODEL)) == DEMO_MODEL


@pytest.mark.parametrize("path", ["/nowhere/model.gguf", "~/nowhere.gguf", "/", "https://example.org/model.gguf"])
def test_a_file_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(NotFound, match=path):
        model_file(path)


@pytest.mark.parametrize("path", ["hf:", "hf:model.gguf", "hf:owner/model.gguf", "hf:owner/name/", "hf:/name/file"])
def test_the_form_of_a_hub_address_is_told(path: str) -> None:
    with pytest.raises(BadRequest, match="hf:OWNER/NAME/FILE"):
        model_file(path)


@pytest.mark.parametrize("file", ["model.gguf", "folder/model.gguf"])
def test_a_cached_file_of_the_hub_is_used_without_the_network(tmp_path: Path, file: str) -> None:
    repository = tmp_path / "models--owner--name"
    cached = repository / "snapshots" / COMMIT / file
    cached.parent.mkdir(parents=True)
    cached.symlink_to(DEMO_MODEL)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    assert model_file(f"hf:owner/name/{file}", tmp_path) == cached


def test_the_hubs_library_writes_no_lines_beside_the_log() -> None:
    import_module("tg_llama.core.hub")
    assert get_logger("huggingface_hub.file_download").parent is logging.getLogger("huggingface_hub")
    assert logging.getLogger("huggingface_hub").handlers == []


def in_a_process(path: str, cache: Path, *, fetch: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Look for a model file in a process of its own: the hub's library reads its environment when it is imported."""
    code = f"from tg_llama.core.model_file import model_file; print(model_file({path!r}, fetch={fetch}))"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_of_the_hub_is_fetched_once(tmp_path: Path) -> None:
    with hub_server(b"a model") as (url, asked):
        first = in_a_process("hf:owner/name/model.gguf", tmp_path, HF_ENDPOINT=url)
        assert first.returncode == 0, first.stderr
        assert any(line.startswith("GET /owner/name/resolve/") for line in asked)
        asked.clear()
        again = in_a_process("hf:owner/name/model.gguf", tmp_path, HF_ENDPOINT=url)
    path = first.stdout.splitlines()[-1]
    assert Path(path).read_bytes() == b"a model"
    assert again.stdout.splitlines() == [path]
    assert asked == []
    assert "%" not in first.stderr, "no progress bar where there is no terminal"


def test_a_file_of_the_hub_is_only_asked_for(tmp_path: Path) -> None:
    """As a check does, which fetches no weights."""
    with hub_server(b"a model") as (url, asked):
        done = in_a_process("hf:owner/name/model.gguf", tmp_path, fetch=False, HF_ENDPOINT=url)
        assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
        assert any(line.startswith("HEAD /owner/name/resolve/") for line in asked)
        assert not any(line.startswith("GET /owner/name/resolve/") for line in asked)


REFUSED = {
    "hf:owner/gone/model.gguf": "NotFound: the hub has no repository owner/gone",
    "hf:owner/gated/model.gguf": "ProviderAuth: owner/gated is only for those who accepted its terms",
    "hf:owner/name/other.gguf": "NotFound: the repository owner/name has no file other.gguf",
}
ASK_FOR_ALL = """
import sys, tempfile
from pathlib import Path
from tg_llama.core.model_file import model_file
from tg_schema.errors import TgError
for path in sys.argv[1:]:
    for fetch in (True, False):
        with tempfile.TemporaryDirectory() as cache:
            try:
                print(model_file(path, Path(cache), fetch=fetch), file=sys.stderr)
            except TgError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
"""
"""One process for all: the import of llama.cpp and of the hub's library is what costs time."""


def test_what_the_hub_refuses_is_told_in_words() -> None:
    with hub_server(b"") as (url, _):
        done = subprocess.run(
            [sys.executable, "-c", ASK_FOR_ALL, *REFUSED],
            env=os.environ | {"HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    told = done.stderr.splitlines()
    assert len(told) == 2 * len(REFUSED), done.stderr
    for words, fetched, checked in zip(REFUSED.values(), told[::2], told[1::2], strict=True):
        assert fetched.startswith(words)
        assert checked.startswith(words)


def test_without_cache_and_network_it_says_what_to_do(tmp_path: Path) -> None:
    done = in_a_process("hf:owner/name/model.gguf", tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "tg_schema.errors.Unavailable: model.gguf of owner/name is not in the cache and cannot be downloaded now"
    )


def test_a_name_that_the_hub_does_not_allow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="not a name"):
        model_file("hf:-owner/na..me/model.gguf", tmp_path)


@pytest.mark.model
@pytest.mark.parametrize("content", [b"", b"GGUF", b"no model" * 100, DEMO_MODEL.read_bytes()[:100_000]], ids=len)
async def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    with pytest.raises(Unavailable, match="load broken"):
        await LlamaCpp.open("any", LlamaCppOptions(path=str(broken)))
    with pytest.raises(Unavailable, match="load broken"):
        await LlamaCpp.rehearse("any", LlamaCppOptions(path=str(broken)))


@pytest.mark.model
async def test_an_adapter_is_no_model() -> None:
    adapter = Path(__file__).parents[2] / "models" / "tinydemo" / "lora-pirate.gguf"
    with pytest.raises(Unavailable, match="cannot load lora-pirate"):
        await LlamaCpp.open("any", LlamaCppOptions(path=str(adapter)))
    with pytest.raises(Unavailable, match="cannot load lora-pirate"):
        await LlamaCpp.rehearse("any", LlamaCppOptions(path=str(adapter)))


@pytest.mark.model
async def test_a_model_by_path_answers_under_the_name_it_is_given() -> None:
    options = {"path": str(DEMO_MODEL), "slots": 2, "context": 256, "threads": 1, "temperature": 0}
    service = await open_provider("llama-cpp", "my-model", options)
    try:
        assert service.supports_streaming()
        assert service.capacity == 2
        assert isinstance(service, LlamaCpp)
        assert await text_of(service, asked("Count to 3.")) == "1, 2, 3"
        assert service.engine.context_length == 256
    finally:
        await service.aclose()


@pytest.mark.parametrize(
    "options", [{"slots": 0}, {"slots": 257}, {"context": 1}, {"temperature": -1}, {"top_p": 2}, {"unknown": 1}]
)
async def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadRequest, match="llama-cpp"):
        await open_provider("llama-cpp", "any", options)


def test_sizes_suit_the_model() -> None:
    small = LlamaCppOptions().sizes(trained=512, size=2_000_000)
    assert (small.slots, small.context, small.threads) == (16, 512, 1)
    large = LlamaCppOptions().sizes(trained=32_768, size=400_000_000)
    assert (large.context, large.threads, large.engines) == (4096, os.cpu_count(), 1)
    chosen = LlamaCppOptions(context=8192, threads=3, engines=1, slots=4).sizes(trained=32_768, size=400_000_000)
    assert (chosen.slots, chosen.context, chosen.threads, chosen.engines) == (4, 8192, 3, 1)
