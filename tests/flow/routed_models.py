"""A server with models a and b, the route r over both, and a flow with prompts and an agent that is bound to it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import ClientSession
from structlog.testing import capture_logs
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_schema import COMMON_FEATURES, TextCompletionRequest, TgError
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions

BOTH = 'r.models = ["a", "b"]\n'
CONFIG = """
[gateway]
port = 0
drain = 0.05
aliases = {{ nick = "r" }}
[models]
a.provider = "tests.flow.routed_models:RoutedLlm"
b.provider = "tests.flow.routed_models:RoutedLlm"
[flows]
a.text-completion.model = "a"
b.text-completion.model = "b"
[flows.default]
text-completion.model = "r"
prompt = {{}}
agent = {{ calling = "text" }}
[prompts.templates.say]
prompt = "{{{{ word }}}}"
[routes]
{routes}"""


class RoutedLlm(LlmService):
    """A model at the edge of the world. It fails with its error in `errors`; else its answer is its name."""

    features = COMMON_FEATURES
    errors: ClassVar[dict[str, TgError]] = {}
    asked: ClassVar[list[str]] = []
    tried: ClassVar[dict[str, int]] = {}

    def __init__(self, model: str, options: ProviderOptions | None = None) -> None:
        super().__init__(model, options)
        self.tried[model] = self.tries

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.asked.append(self.model)
        if (error := self.errors.get(self.model)) is not None:
            raise error
        yield LlmChunk(text="Final Answer: ")
        yield LlmChunk(text=self.model)
        yield LlmChunk(in_token=1, out_token=2, finish_reason="stop")


@dataclass
class Served:
    """What a test needs of it."""

    file: Path
    http: ClientSession
    logs: list[MutableMapping[str, Any]]

    async def post(self, path: str, body: object) -> str:
        async with self.http.post(path, json=body) as response:
            text = await response.text()
            assert response.status == 200, text
            return text

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            return json.loads(await response.text())

    def lines(self, event: str) -> list[MutableMapping[str, Any]]:
        return [line for line in self.logs if line["event"] == event]

    def edit(self, routes: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(CONFIG.format(routes=routes))
        new.replace(self.file)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """All parts in one process, as `tg-serve` runs them."""
    RoutedLlm.errors.clear()
    RoutedLlm.asked.clear()
    file = folder / "tg.toml"
    file.write_text(CONFIG.format(routes=BOTH))
    with capture_logs() as logs:
        async with launch(ServeOptions(file=file)) as (_, url), ClientSession(str(url)) as http:
            while (await Served(file, http, logs).get("/ready"))["missing"]:
                pass
            yield Served(file, http, logs)
