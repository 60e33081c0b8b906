"""OpenAI as the pages show it, on the loopback interface: with tools it calls them, and then tells what they gave."""

from typing import ClassVar

from aiohttp import web
from typing_extensions import override

from tests.fakes.openai_chat_server import OpenAiChatServer
from tests.fakes.plan import Asked, Counts, Exchange, Plan, PlannedCall

_CALLS = Plan(
    text=("Thought: I convert both ", "lengths.\n"),
    calls=(
        PlannedCall("to_metres", ('{"amount": 26, "unit": "mile"}',), "call_1"),
        PlannedCall("to_metres", ('{"amount": 385, "unit": "yard"}',), "call_2"),
    ),
    finish="tool_calls",
)
_ANSWER = Plan(text=("Final Answer: Together they are ", "42,194.988 metres."))
_PLAIN = Plan(text=("OK",), counts=Counts(tokens_in=10, tokens_out=1, cached=0, reasoning=0, written=0))


class ScriptedOpenAi(OpenAiChatServer):
    """The model and the answers of the pages."""

    model: ClassVar[str] = "gpt-4o-mini"

    @override
    async def _played(self, request: web.Request, exchange: Exchange, plan: Plan, asked: Asked) -> web.StreamResponse:
        return await super()._played(request, exchange, _choose_plan(asked), asked)


def _choose_plan(asked: Asked) -> Plan:
    if not asked.tools:
        return _PLAIN
    return _ANSWER if asked.turns[-1].role == "tool" else _CALLS
