"""Text completion -> the edge of the world: a model whose every token tells which request it answers, and which try.

A prompt is a line of its own, `SCRIPT name=r1 tokens=5 first=0.2 pace=0.05`; it may stand in a longer text.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import msgspec
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.llm.large_request import read_request
from tg_base.protocol import StreamKey
from tg_base.server import ACCOUNT
from tg_schema import TextCompletionRequest
from tg_schema.errors import Unavailable

_SCRIPT = re.compile(r"SCRIPT (name=.*)")
CALL = 'Thought: I look it up.\nAction: echo\nAction Input: {"text": "hello"}\n'
ANSWER = "Thought: I know.\nFinal Answer: "


@dataclass(frozen=True)
class Script:
    """What the model is to do for one request.

    Attributes:
        name: the request's.
        tokens: of the answer.
        first: seconds before the first one.
        pace: seconds between two.
        size: characters that each token is filled up to.
        fails: whether it fails after half of them.
        failing: the flow whose model fails before all of them; "" = none does for that.
        react: whether it is an agent that asks: "call" = with a tool first, "answer" = at once.
    """

    name: str
    tokens: int = 5
    first: float = 0.1
    pace: float = 0.05
    size: int = 0
    fails: bool = False
    failing: str = ""
    react: str = ""

    @property
    def seconds(self) -> float:
        """How long the whole answer takes, where nothing holds it up."""
        return self.first + self.pace * max(self.tokens - 1, 0)

    @property
    def line(self) -> str:
        """As it stands in a prompt."""
        return "SCRIPT " + " ".join(f"{name}={value}" for name, value in msgspec.to_builtins(self).items())

    @classmethod
    def of(cls, prompt: str) -> "Script":
        """Read it from a prompt."""
        found = _SCRIPT.search(prompt)
        assert found is not None, prompt
        pairs = dict(pair.partition("=")[::2] for pair in found[1].split())
        return msgspec.convert(pairs | {"fails": pairs["fails"] == "True"}, cls, strict=False)

    def token(self, generation: int, number: int) -> str:
        """One token of one try."""
        return f"{self.name}g{generation}.{number} ".rjust(self.size, "x")

    def text(self, generation: int) -> str:
        """The whole answer of one try."""
        return "".join(self.token(generation, number) for number in range(self.tokens))


@dataclass(eq=False)
class Generation:
    """One try at one request, paid for from its beginning on.

    Attributes:
        script: what is asked.
        number: which try.
        process: who generates.
        turn: which of an agent's questions it answers.
        begun: when.
        alive_until: it gives a sign of life until then, as long as nothing holds it up; once it is closed, when it was.
        control: the topic on which its process hears of cancels.
        key: the stream and the attempt that it answers.
        open: whether it goes on.
        finished: whether it has said all that it had to say.
    """

    script: Script
    number: int
    process: object
    turn: str
    begun: float
    alive_until: float
    control: str
    key: StreamKey
    open: bool = True
    finished: bool = False


class ScriptedModel(LlmService):
    """Answers as the prompt says.

    Args:
        capacity: requests side by side.
        begin: called with a script, the turn and the key when a generation begins.
        now: the simulator's clock.
    """

    def __init__(
        self, capacity: int, begin: Callable[[Script, str, StreamKey], Generation], now: Callable[[], float]
    ) -> None:
        super().__init__("scripted", ProviderOptions(capacity=capacity, tries=1))
        self._begin = begin
        self._now = now

    @override
    async def read(self, body: bytes) -> TextCompletionRequest:
        # Here, since the simulated world has no worker processes.
        return read_request(body)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        prompt = request.prompt or ""
        script = Script.of(prompt)
        calls = script.react == "call" and "Observation: " not in prompt
        account = ACCOUNT.get()
        assert account is not None
        generation = self._begin(script, "call" if calls else "", account.headers.key)
        try:
            await self._sleep(generation, script.first)
            if script.failing == account.flow:
                raise Unavailable("this model fails, and the other one does not")
            if calls:
                yield LlmChunk(text=CALL, out_token=1)
            else:
                if script.react:
                    yield LlmChunk(text=ANSWER, out_token=1)
                for number in range(script.tokens):
                    if number:
                        await self._sleep(generation, script.pace)
                    if script.fails and number >= script.tokens // 2:
                        raise Unavailable("the model fails, as it was told to")
                    yield LlmChunk(text=script.token(generation.number, number), out_token=1)
            generation.finished = True
            yield LlmChunk(in_token=7, finish_reason="stop")
        finally:
            generation.open = False
            generation.alive_until = self._now()

    async def _sleep(self, generation: Generation, seconds: float) -> None:
        generation.alive_until = self._now() + seconds
        await asyncio.sleep(seconds)
