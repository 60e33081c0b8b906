"""A real browser: a page of another port streams by `fetch` and by WebSocket if its origin is configured, else not."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec import structs

from tests.browser.chromium import PageServer, chromium_or_skip
from tests.flow.open_gateway import open_gateway
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tg_base.config import GatewayConfig

PAGE = """<!doctype html><script>
const asked = new URLSearchParams(location.search), gateway = asked.get("gateway"), token = asked.get("token");

async function streamed() {
  const answer = await fetch(gateway + "api/v1/text-completion", {
    method: "POST",
    headers: {"Content-Type": "application/json", "Authorization": "Bearer " + token},
    body: JSON.stringify({prompt: "3", streaming: true}),
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
  return {status: answer.status, id: answer.headers.get("X-Request-Id") !== null, text};
}

function spoken() {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(gateway.replace("http", "ws") + "api/v1/socket"), messages = [];
    socket.onopen = () => socket.send(JSON.stringify({type: "auth", token}));
    socket.onerror = () => reject(new TypeError("the socket failed"));
    socket.onmessage = event => {
      const message = JSON.parse(event.data);
      messages.push(message);
      if (message.type === "auth-ok")
        socket.send(JSON.stringify({id: "a", service: "text-completion", request: {prompt: "1"}}));
      if (message.complete) resolve(messages);
    };
  });
}

const failed = error => ({failed: error.name});
Promise.all([streamed().catch(failed), spoken().catch(failed)])
  .then(seen => fetch("/report", {method: "POST", body: JSON.stringify(seen)}));
</script>"""

pytestmark = pytest.mark.timeout(180)


async def visit(config: GatewayConfig, *, configured: bool, folder: Path) -> list[Any]:
    program, environment = chromium_or_skip(folder / "program")
    async with PageServer.serving(PAGE) as page:
        origins = (page.origin,) if configured else ("https://app.example",)
        async with open_gateway(structs.replace(config, origins=origins)) as it:
            query = urlencode({"gateway": it.gateway.url, "token": TOKEN})
            seen: list[Any] = json.loads(await page.visit(program, environment, query, folder / "profile"))
    return seen


async def test_a_page_of_a_configured_origin_streams(tmp_path: Path) -> None:
    streamed, spoken = await visit(LOCKED, configured=True, folder=tmp_path)
    assert (streamed["status"], streamed["id"]) == (200, True)
    events = [json.loads(line.removeprefix("data: ")) for line in streamed["text"].split("\n\n") if line]
    assert "".join(event["response"] for event in events) == "0 1 2 "
    assert spoken[-1]["complete"] is True


async def test_a_page_of_another_origin_sees_nothing(tmp_path: Path) -> None:
    streamed, spoken = await visit(LOCKED, configured=False, folder=tmp_path)
    assert streamed == spoken == {"failed": "TypeError"}
