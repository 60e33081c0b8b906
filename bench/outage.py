"""A primary model that is dead for a minute beside a fallback, and clients that leave: ours, and LiteLLM's proxy.

    python -m bench.outage --litellm "$(command -v litellm)"

Prints how many tries reached the primary while it was dead, the p50 of the answers then and of the fallback's own, and
how many output tokens were counted of those that clients left. Without `--litellm` it measures ours alone.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from bench.subject import Subject, tokengrid
from tests.fakes.openai_transcript import done, event, finish_event, first_event, usage_event
from tests.free_port import free_port

WORDS, WORD_SECONDS = 20, 0.005
REQUESTS_PER_SECOND = 5
PATIENCE_SECONDS = 60.0
LEFT, LEFT_AFTER_EVENTS = 20, 5
OURS = """
[models.chat]
provider = "openai"
options = {{ base_url = "{primary}/v1", key_variable = "" }}
[models.backup]
provider = "openai"
options = {{ base_url = "{fallback}/v1", key_variable = "" }}
[flows.default]
text-completion = {{ model = "chat" }}
usage = {{}}
[flows.backup]
text-completion = {{ model = "backup" }}
[routes.either]
models = ["chat", "backup"]
"""
THEIRS = """
model_list:
- {{model_name: either, litellm_params: {{model: openai/chat, api_base: "{primary}/v1", api_key: none}}}}
- {{model_name: backup, litellm_params: {{model: openai/backup, api_base: "{fallback}/v1", api_key: none}}}}
router_settings: {{fallbacks: [{{either: [backup]}}]}}
litellm_settings: {{callbacks: counted.counted, telemetry: false}}
"""
COUNTED = """
import json, os
from litellm.integrations.custom_logger import CustomLogger


class Counted(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        self.write(getattr(response_obj, "usage", None))

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):
        self.write(None)

    def write(self, usage):
        with open(os.environ["COUNTED"], "a") as file:
            file.write(json.dumps(getattr(usage, "completion_tokens", None)) + "\\n")


counted = Counted()
"""


class Model:
    """A provider that streams words after a pause, or is dead; counts what reaches it and the words that it sent."""

    def __init__(self) -> None:
        self.dead = False
        self.pause = 0.0
        self.tries = self.words = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One completion; it goes on while its client stays."""
        self.tries += 1
        if self.dead:
            return web.json_response({"error": {"message": "down", "code": "server_error"}}, status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(self.pause)
        await response.write(first_event("m"))
        for number in range(WORDS):
            await asyncio.sleep(WORD_SECONDS)
            await response.write(event("m", {"content": f"word{number} "}))
            self.words += 1
        await response.write(finish_event("m", "stop") + usage_event("m", 5, WORDS) + done())
        return response


async def ask(http: ClientSession, model: str, most: int | None = None) -> float | None:
    """Seconds until the answer has ended; None = it failed. The client leaves after `most` events; None = it stays."""
    began, events = time.perf_counter(), 0
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Say some words."}]}
    with suppress(TimeoutError):
        async with http.post("v1/chat/completions", json=body) as response:
            async for line in response.content:
                events += line.startswith(b"data: ")
                if events == most:
                    response.close()
                    break
            return time.perf_counter() - began if response.status == 200 and events > 2 else None
    return None


async def steadily(http: ClientSession, model: str, seconds: float) -> list[float | None]:
    """Ask at a steady rate for `seconds`; the duration of each answer in seconds, None for one that failed."""
    tasks = []
    for _ in range(round(seconds * REQUESTS_PER_SECOND)):
        tasks.append(asyncio.create_task(ask(http, model)))
        await asyncio.sleep(1 / REQUESTS_PER_SECOND)
    return await asyncio.gather(*tasks)


async def ready(http: ClientSession) -> None:
    """Return once it answers."""
    for _ in range(3000):
        try:
            if await ask(http, "either"):
                return
        except OSError:
            pass
        await asyncio.sleep(0.2)
    raise AssertionError("it does not get ready")


async def counted(http: ClientSession, file: Path) -> int:
    """Output tokens that the subject has counted so far."""
    if lines := await asyncio.to_thread(lambda: file.read_text("utf-8").splitlines() if file.exists() else []):
        return sum(json.loads(line) or 0 for line in lines)
    async with http.get("api/v1/usage?since=1d") as response:
        rows = (await response.json()).get("rows") if response.status == 200 else []
        return sum(row["out_token"] or 0 for row in rows)


def p50(answers: list[float | None]) -> float:
    """In milliseconds, of those that came."""
    return round(1000 * statistics.median([answer for answer in answers if answer]), 1)


async def measure(command: list[str], folder: Path, url: str, models: tuple[Model, Model], dead: float) -> None:
    """One subject."""
    name, (primary, fallback) = folder.name, models
    file = folder / "counted"
    # LiteLLM wants a key of its own otherwise.
    keyless = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    environment = {**keyless, "COUNTED": str(file), "PYTHONPATH": str(folder), "PATH": os.environ["PATH"]}
    with Subject(name, command, folder / "log", environment, quiet=True):
        async with ClientSession(url, timeout=ClientTimeout(PATIENCE_SECONDS)) as http:
            await ready(http)
            await steadily(http, "either", 5)
            primary.tries, primary.dead = 0, True
            # Side by side, so that what else the machine does slows both.
            answers, own = await asyncio.gather(steadily(http, "either", dead), steadily(http, "backup", dead))
            tries, primary.dead = primary.tries, False
            print(f"{name}: {tries} tries for {len(answers)} requests, {answers.count(None)} failed, ", end="")
            print(f"p50 {p50(answers)} ms; the fallback's own {p50(own)} ms", flush=True)
            await asyncio.sleep(2)
            before, primary.words, fallback.words = await counted(http, file), 0, 0
            await asyncio.gather(*(ask(http, "backup", LEFT_AFTER_EVENTS) for _ in range(LEFT)))
            await asyncio.sleep(3)
            print(
                f"{name}: {await counted(http, file) - before} tokens counted, {fallback.words} words sent by the ",
                end="",
            )
            print(f"provider, of {LEFT} answers left after {LEFT_AFTER_EVENTS} events", flush=True)


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litellm", help="its command, installed apart from this project")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the outage")
    options = parser.parse_args()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-outage-")))
        models, urls = (Model(), Model()), {}
        for name, model in zip(("primary", "fallback"), models, strict=True):
            application = web.Application()
            application.router.add_post("/v1/chat/completions", model.answer)
            server = await stack.enter_async_context(TestServer(application, handler_cancellation=True))
            urls[name] = str(server.make_url("")).rstrip("/")
        subjects = {"ours": (OURS, "tg.toml", tokengrid("--bus", "memory://"))}
        if options.litellm:
            subjects["litellm"] = (THEIRS, "litellm.yaml", [options.litellm, "--host", "127.0.0.1"])
        for name, (configuration, file, command) in subjects.items():
            place, port = folder / name, free_port()
            place.mkdir()
            (place / file).write_text(configuration.format(**urls), "utf-8")
            if name == "litellm":
                (place / "counted.py").write_text(COUNTED, "utf-8")
                (place / "counted").touch()
            whole = [*command, "--config", str(place / file), "--port", str(port)]
            await measure(whole, place, f"http://127.0.0.1:{port}/", models, options.seconds)


if __name__ == "__main__":
    asyncio.run(main())
