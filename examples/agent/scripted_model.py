"""A model that follows rules where others reason, so that the example runs offline, and always in the same way.

It is a provider like any other: a class that generates an answer piece by piece, named in tokengrid.toml. It calls
tools as large models do, natively, and one after the other: what it found in the notes goes into its sum.

    How many lines mention "apple", times 12?        searches, then calculates with what it has found
    What is (14 * 9) * 60?                           calculates
    Which lines mention "honey"?                     searches
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_schema import TextCompletionRequest, ToolCallDelta
from tg_schema.features import Feature

QUOTED = re.compile(r'"([^"]+)"')
FACTOR = re.compile(r"\btimes (\d+(?:\.\d+)?)")
SUM = re.compile(r"[(\d][\d\s.+*/()-]*[-+*/][\d\s.+*/()-]*[\d)]")


class ScriptedOptions(ProviderOptions, frozen=True):
    """`pause`: seconds before each word, as if the model had to think."""

    pause: float = 0.0


class ScriptedModel(LlmService):
    """See above."""

    Options = ScriptedOptions
    features = frozenset[Feature]({"tools", "history"})

    def __init__(self, model: str, options: ScriptedOptions) -> None:
        super().__init__(model, options)
        self._pause = options.pause

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        question = next(turn.text for turn in request.turns if turn.role == "user")
        results = [turn for turn in request.turns if turn.role == "tool"]
        failed = any(turn.error for turn in results)
        text, call = _given_up(results[-1].text) if failed else _turn(question, [turn.text for turn in results])
        words = re.findall(r"\S+\s*", text)
        for word in words:
            await asyncio.sleep(self._pause)
            yield LlmChunk(text=word, out_token=1)
        if call is not None:
            yield LlmChunk(tool_calls=(call,))
        told = sum(len(turn.text.split()) for turn in request.turns)
        yield LlmChunk(in_token=told, finish_reason="stop" if call is None else "tool_calls")


def _turn(question: str, results: list[str]) -> tuple[str, ToolCallDelta | None]:
    """What to say now that the tools have given `results`, and the call to make, if any."""
    plan = list(_plan(question, results))
    if len(results) < len(plan):
        thought, tool, arguments = plan[len(results)]
        number = len(results)
        return f"Thought: {thought}\n", ToolCallDelta(0, f"call_{number}", tool, json.dumps(arguments))
    if not plan:
        return 'Final Answer: I can only search the notes for a "quoted text", and calculate.', None
    return f"Thought: I know the answer.\nFinal Answer: {_answer(question, results)}", None


def _given_up(reason: str) -> tuple[str, None]:
    return f"Thought: That did not work.\nFinal Answer: I cannot tell: {reason}", None


def _plan(question: str, results: list[str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The calls that a question takes: why, which tool, with what."""
    quoted, factor, total = QUOTED.search(question), FACTOR.search(question), SUM.search(question)
    if quoted:
        yield f'I must look for "{quoted[1]}" in the notes.', "search_notes", {"text": quoted[1]}
        if factor and results:
            lines = _lines(results[0])
            yield (
                f"The notes have {lines} such lines. Now I can multiply.",
                "calculator",
                {"expression": f"{lines} * {factor[1]}"},
            )
    elif total:
        yield "This is a sum for the calculator.", "calculator", {"expression": total[0].strip()}


def _answer(question: str, results: list[str]) -> str:
    if not QUOTED.search(question):
        return f"It is {results[-1]}."
    if FACTOR.search(question):
        return f"{_lines(results[0])} lines mention it, so it is {results[-1]}."
    return results[0]


def _lines(result: str) -> str:
    """How many lines the search says it has found."""
    found = re.search(r"(\d+) lines found", result)
    return found[1] if found else "0"
