"""What an agent's request of 76 KB costs at each door, by that of the same conversation in our own JSON.

    python -m bench.agent_request              medians of nine rounds of 40 requests a door (about a minute)

Gateway and processor share one process, with the memory bus and the openai provider; the client and the provider's
server are processes of their own. The doors are asked in turn, on connections that stay open. A cost is CPU time of the
event loop's thread for one request: read, parsed, queued, taken, written for the provider, and answered with one chunk.
"""

import argparse
import json
import statistics
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import structlog
import uvloop

from bench.child import Child
from bench.large_bodies import Pipeline, text

TOOLS, ROUNDS_OF_CALLS = 28, 12
Turn = dict[str, Any]


def tools() -> list[Turn]:
    """Those of a coding agent: long descriptions and schemas of a few fields."""
    field = {"type": "string", "description": text(85)}
    schema = {"type": "object", "properties": {f"field_{number}": field for number in range(6)}, "required": []}
    return [{"name": f"tool_{number}", "description": text(920), "parameters": schema} for number in range(TOOLS)]


INSTRUCTIONS, QUESTION, RESULT, ARGUMENTS = text(5400), text(240), text(1020), {"path": "x"}


def native() -> Turn:
    """In our own JSON."""
    turns: list[Turn] = [{"role": "system", "content": INSTRUCTIONS}]
    for number in range(ROUNDS_OF_CALLS):
        call = {"id": f"call_{number}", "name": "tool_1", "arguments": json.dumps(ARGUMENTS)}
        turns += [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": RESULT},
        ]
    return {"streaming": True, "messages": turns, "tools": tools()}


def chat() -> Turn:
    """As OpenAI's chat completions."""
    turns: list[Turn] = [{"role": "system", "content": INSTRUCTIONS}]
    for number in range(ROUNDS_OF_CALLS):
        function = {"name": "tool_1", "arguments": json.dumps(ARGUMENTS)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        turns += [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": RESULT},
        ]
    return {"stream": True, "messages": turns, "tools": [{"type": "function", "function": tool} for tool in tools()]}


def responses() -> Turn:
    """As OpenAI's Responses."""
    items: list[Turn] = []
    for number in range(ROUNDS_OF_CALLS):
        call = {"call_id": f"call_{number}", "name": "tool_1", "arguments": json.dumps(ARGUMENTS)}
        items += [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
            {"type": "function_call", **call},
            {"type": "function_call_output", "call_id": call["call_id"], "output": RESULT},
        ]
    made = [{"type": "function", "strict": False, **tool} for tool in tools()]
    return {"stream": True, "store": False, "instructions": INSTRUCTIONS, "input": items, "tools": made}


def messages() -> Turn:
    """As Anthropic's Messages."""
    turns: list[Turn] = []
    for number in range(ROUNDS_OF_CALLS):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "tool_1", "input": ARGUMENTS}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": RESULT}
        turns += [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    made = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in tools()
    ]
    return {
        "stream": True, "max_tokens": 1000, "system": [{"type": "text", "text": INSTRUCTIONS}], "messages": turns,
        "tools": made,
    }  # fmt: skip


BODIES = {
    "/api/v1/text-completion": native,
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
}


async def measure(url: str, rounds: int, count: int) -> dict[str, list[float]]:
    """Milliseconds for one request, for each round, by path."""
    found: dict[str, list[float]] = {path: [] for path in BODIES}
    async with AsyncExitStack() as stack:
        pipeline = await stack.enter_async_context(Pipeline.open(url))
        for number in range(rounds + 1):
            for path, make in BODIES.items():
                body = json.dumps({"model": "m", **make()}).encode()
                before = time.thread_time()
                await pipeline.ask(path, body, count)
                if number:
                    found[path].append(1000 * (time.thread_time() - before) / count)
    return found


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=40)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with ExitStack() as stack:
        fake = stack.enter_context(Child("bench.large_bodies", "server", "openai"))
        found = uvloop.run(measure(f"http://127.0.0.1:{fake.hear()}/v1", args.rounds, args.count))
    floor = found[next(iter(BODIES))]
    print("| path | KB | ms of CPU | by native |\n|---|---|---|---|")
    for path, costs in found.items():
        ratio = statistics.median(cost / native for cost, native in zip(costs, floor, strict=True))
        size = len(json.dumps({"model": "m", **BODIES[path]()})) / 1000
        print(f"| `{path}` | {size:.0f} | {statistics.median(costs):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
