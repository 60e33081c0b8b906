"""OpenAI's chat completions that answer by what they are asked, and not by a plan: for clients that ask as they like.

What to say is told by words of the conversation. Requests are refused as OpenAI refuses them, after its public API
reference and its guide "Structured Outputs".
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from typing_extensions import override

from tests.fakes.loopback_server import Refused
from tests.fakes.openai_chat_server import OpenAiChatServer
from tests.fakes.openai_transcript import refusal
from tests.fakes.plan import Asked, Fault, Plan, PlannedCall

CONTEXT_WORDS: Final = 30_000
"""Of a whole conversation; OpenAI counts tokens. A coding agent's own instructions are some thousand."""

HELLO: Final = "Say hello."
WEATHER: Final = "How is the weather in Paris?"
WHO: Final = "Who is Anna? Answer in JSON."
NAME: Final = "My name is Anna."
ASK_NAME: Final = "What is my name?"
COUNT: Final = "Count to three."
"""The questions that it knows."""


class ListeningServer(OpenAiChatServer):
    """Calls the tool that knows, fills in what a schema requires, remembers what it was told, and cannot count."""

    @override
    def choose(self, plan: Plan, asked: Asked) -> Plan:
        words = sum(len(turn.text.split()) for turn in asked.turns) + len(asked.system.split())
        if words > CONTEXT_WORDS:
            raise Refused(_failed(f"This model's maximum context length is {CONTEXT_WORDS} tokens. However, your "
                                  f"messages resulted in {words} tokens. Please reduce the length of the messages.",
                                  "context_length_exceeded"))  # fmt: skip
        said = [turn.text for turn in asked.turns if turn.role == "user"]
        if asked.json and "json" not in " ".join((asked.system, *said)).lower():
            raise Refused(_failed("'messages' must contain the word 'json' in some form, to use 'response_format' of "
                                  "type 'json_object'.", None))  # fmt: skip
        return _answer(asked, said)


def _answer(asked: Asked, said: list[str]) -> Plan:
    question = said[-1] if said else ""
    if asked.turns[-1].role == "tool":
        return Plan(text=("It is ", *re.findall(r"\s*\S+", asked.turns[-1].text), "."))
    if COUNT in question:
        return Plan(text=("One, ", "two, "), fault=Fault.ABORT, after=2)
    if WHO in question:
        return _describe(asked)
    if WEATHER in question and asked.tools:
        # A coding agent has no such tool, but one that reads files.
        (tool,) = [tool for tool in asked.tools if "weather" in tool.name or tool.name == "read"]
        city = tool.name != "read"
        arguments = json.dumps({"city": "Paris"} if city else {tool.parameters["required"][0]: "weather.txt"})
        call = PlannedCall(tool.name, (arguments[:5], arguments[5:]))
        return Plan(text=("I look. ",), calls=(call,), finish="tool_calls")
    if ASK_NAME in question:
        known = any(NAME in text for text in said[:-1])
        return Plan(text=("Your name ", "is Anna.") if known else ("I do not ", "know it."))
    return Plan(text=("Hello", " wor", "ld €."))


def _describe(asked: Asked) -> Plan:
    """Anna, whose age is not known."""
    if asked.schema is None and asked.tools:
        named = [tool for tool in asked.tools if tool.name == asked.tool_choice] or asked.tools
        call = PlannedCall(named[-1].name, (_fill(named[-1].parameters),))
        return Plan(text=(), calls=(call,), finish="tool_calls")
    return Plan(text=(_fill(asked.schema or {}),))


def _fill(schema: Mapping[str, Any]) -> str:
    return json.dumps(dict.fromkeys(schema.get("required", ()), None) | {"name": "Anna"})


def _failed(message: str, code: str | None) -> web.Response:
    return web.Response(status=400, content_type="application/json", body=refusal(message, code))
