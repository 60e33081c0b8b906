"""One id in the logs of every process that works on a request: gateway, agent, prompt and text completion."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.connected.pipeline import Pipeline, pipeline
from tests.fakes.gated_openai import GatedOpenAi
from tests.pulsar_server import PulsarServer
from tests.until import until

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

PARTS = ("text-completion", "prompt", "agent", "gateway")
LINES = 6
"""One of the gateway, one of the service that was asked, and one of the model, for each of two requests."""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def said(it: Pipeline) -> list[dict[str, Any]]:
    """All lines of all processes, each with its part."""
    return [
        json.loads(line) | {"part": name}
        for name, part in zip(PARTS, it.parts, strict=True)
        for line in part.said.read_text("utf-8").splitlines()
    ]


def lines_of_requests(it: Pipeline) -> list[dict[str, Any]]:
    return [line for line in said(it) if line["event"] in {"request.done", "gateway.request"}]


async def test_every_process_logs_whose_request_it_is(pulsar: PulsarServer, tmp_path: Path) -> None:
    async with GatedOpenAi.listening() as provider, pipeline(provider.url, pulsar.service_url, tmp_path) as it:
        provider.gate.set()
        with it.file.open("a", encoding="utf-8") as file:
            file.write('prompt = {}\nagent = {}\n[prompts.templates.hello]\nprompt = "Hello {{ name }}"\n')
        for part in PARTS:
            await it.start(part, "--log-level", "info")
        async with aiohttp.ClientSession(it.parts[-1].url) as http:
            for service, request in (
                ("agent", {"question": "q"}),
                ("prompt", {"id": "hello", "variables": {"name": 1}}),
            ):
                headers = {"X-Request-Id": f"r-{service}", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
                path = f"/api/v1/flow/{it.flow}/service/{service}"
                async with http.post(path, json=request, headers=headers) as response:
                    assert response.status == 200, await response.text()
                    assert response.headers["X-Request-Id"] == f"r-{service}"
        # A line is written after the response has ended, the gateway's as well.
        await until(lambda: len(lines_of_requests(it)) == LINES)
        lines = lines_of_requests(it)
    for service in ("agent", "prompt"):
        hops = {line["part"]: line for line in lines if line["request"] == f"r-{service}"}
        assert set(hops) == {"gateway", service, "text-completion"}
        assert hops["gateway"]["stream"] == hops[service]["stream"] == hops["text-completion"]["parent"]
        assert "parent" not in hops[service]
    assert len(lines) == LINES
    assert {line["traceparent"].split("-")[1] for line in lines} == {TRACE}
