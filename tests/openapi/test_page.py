"""`/docs` in a DOM: it shows all operations, sends an example with a key, shows a stream as it comes, and stops it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.endless_llm import EndlessLlm
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tests.openapi.described_gateway import MODEL, described_gateway
from tests.openapi.document import OPERATIONS
from tests.openapi.jsdom import jsdom_or_skip
from tests.uv_command import ROOT
from tg_base.llm import LlmChunk

VISIT_SECONDS = 60.0
PAGE = ROOT / "gateway" / "tg_gateway" / "openapi" / "page"


async def visit(url: str, operation: str, key: str) -> dict[str, Any]:
    """What visit_page.mjs prints."""
    node, folder = await asyncio.to_thread(jsdom_or_skip)
    program = Path(__file__).with_name("visit_page.mjs")
    process = await asyncio.create_subprocess_exec(
        node, program, folder, url, operation, key, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), VISIT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    seen: dict[str, Any] = json.loads(out)
    return seen


@pytest.mark.clients
@pytest.mark.timeout(400)
async def test_a_stream_is_shown_as_it_comes_and_stopped() -> None:
    llm = EndlessLlm(LlmChunk("<b>bold</b> "))
    llm.model = MODEL
    async with described_gateway(llm, LOCKED) as http:
        seen = await visit(str(http._base_url), "post_v1_chat_completions", TOKEN)
        # The model never ends by itself: what was shown came before any end.
        assert seen["first"]["sending"]
        assert seen["first"]["status"].startswith("200 text/event-stream")
        assert seen["last"].endswith("stopped")
        await asyncio.wait_for(llm.stopped.wait(), 10)
    assert seen["shown"].startswith('data: {"id":"chatcmpl-')
    assert "<b>bold</b>" in seen["shown"]
    assert json.loads(seen["body"])["stream"] is True
    assert seen["asked"] == ["GET /openapi.json", "POST /v1/chat/completions"]
    assert {each.described["operationId"] for each in OPERATIONS} < set(seen["operations"])


@pytest.mark.clients
@pytest.mark.timeout(400)
async def test_a_refusal_is_shown() -> None:
    async with described_gateway(EndlessLlm(), LOCKED) as http:
        seen = await visit(str(http._base_url), "post_v1_chat_completions", "wrong")
    assert seen["last"].startswith("401 application/json")
    assert "invalid_api_key" in seen["shown"]
    # The model that is typed takes its place in paths and in what was written, which stays.
    assert seen["retyped"]["path"] == "other"
    assert json.loads(seen["retyped"]["body"]) == {**json.loads(seen["body"]), "seed": 7, "model": "other"}


def test_the_page_loads_nothing_from_elsewhere_and_stores_nothing() -> None:
    files = {path.name: path.read_text("utf-8") for path in PAGE.iterdir()}
    assert set(files) == {"page.html", "page.js", "page.css"}
    text = "\n".join(files.values())
    assert not re.search(r"https?://|//\w", re.sub(r"^ *//.*$", "", text, flags=re.MULTILINE))
    assert re.findall(r'(?:src|href)="([^"]+)"', files["page.html"]) == [
        "docs/page.css",
        "docs/page.js",
        "openapi.json",
    ]
    assert not re.search(r"localStorage|sessionStorage|indexedDB|cookie|innerHTML|eval\(", text)


def test_the_page_is_one_for_phones_and_dark_screens() -> None:
    """What a browser showed: without these a phone scrolls sideways, and dark fields stand on a white page."""
    assert 'content="width=device-width, initial-scale=1"' in (PAGE / "page.html").read_text("utf-8")
    style = (PAGE / "page.css").read_text("utf-8")
    assert ":root { color-scheme: light dark; }" in style
    # Paths are longer than a phone is wide.
    assert re.search(r"^body \{.*overflow-wrap: anywhere;", style, re.MULTILINE)
