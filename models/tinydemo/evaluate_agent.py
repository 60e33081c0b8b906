"""Ask a model with the tools of examples/agent, as an agent does, and judge calls and answers. Needs tokengrid-flow.

    PYTHONPATH=../../examples/agent python evaluate_agent.py [MODEL.gguf] [--show]

Without a file it asks the packaged model through the provider `demo`, which holds calls to words of the conversation;
with one it asks llama-cpp. The questions are none of the corpus.
"""

import argparse
import asyncio
import json
import random
import re
from collections import Counter

from farm_tools import calculator, search_notes
from tool_calls import AGENT

from tg_llama.demo_provider import Demo, DemoOptions
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, Tool, ToolCall
from tg_schema.errors import BadRequest

WORDS = """apple honey hive october juice jar fruit trees february kg litre march zebra wolf pumpkin Schmidt quark behind
pruned orchard sold bees rows stand good year Martinez xylophone harvest blackbird T-34 glacier kingfisher winter tractor
Ogorodnikov""".split()
MOST_STEPS = 5


def tool(name, argument):
    """A tool with one text."""
    return Tool(name, name, {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]})


TOOLS = (tool("calculator", "expression"), tool("search_notes", "text"))


def cases():
    """Kind, question, and the right calls; of a product of what is found, only the factor."""
    r = random.Random(4711)
    for _ in range(60):
        sum_ = f"{r.randint(0, 100)} {r.choice('*+-/*')} {r.randint(0, 100)}"
        forms = ["What is {}?", "What is {}?", "{}", "How much is {}?", "Calculate {}", "Please work out {} for me."]
        yield "sum", r.choice(forms).format(sum_), [("calculator", sum_)]
    for _ in range(25):
        a, b, c = (r.randint(1, 100) for _ in range(3))
        s, t = r.choice("*+-/*"), r.choice("*+-")
        sum_ = r.choice([f"({a} {s} {b}) {t} {c}", f"{a} {s} ({b} {t} {c})", f"{a} {s} {b} {t} {c}", f"{a}.5 {s} {b}"])
        yield "longer", f"What is {sum_}?", [("calculator", sum_)]
    for _ in range(15):
        a, b = r.randint(2, 100), r.randint(2, 100)
        word, sign = r.choice([("times", "*"), ("plus", "+"), ("minus", "-"), ("divided by", "/")])
        yield "in words", f"What is {a} {word} {b}?", [("calculator", f"{a} {sign} {b}")]
    for word in WORDS:
        forms = ['Which lines mention "{}"?', 'Where is "{}" mentioned?', 'What do the notes say about "{}"?']
        yield "which", r.choice(forms).format(word), [("search_notes", word)]
        yield "count", f'How many lines mention "{word}"?', [("search_notes", word)]
        times = r.choice([r.randint(2, 100), r.randint(2, 20), 2.5])
        yield "times", f'How many lines mention "{word}", times {times}?', [("search_notes", word), ("factor", times)]


async def called(name, text):
    """What a tool says."""
    if name == "search_notes":
        return "".join([line async for line in search_notes(text)])
    try:
        return json.dumps(calculator(text))
    except BadRequest as error:
        return f"error: {error.message}"


async def dialog(service, question):
    """The calls up to an answer, and the answer."""
    turns, calls = [Message("user", question)], []
    for step in range(MOST_STEPS):
        limits = Sampling(temperature=0, max_tokens=200)
        request = TextCompletionRequest(system=AGENT, messages=tuple(turns), tools=TOOLS, sampling=limits)
        answer = TextCompletionResponse.join([record async for record in service.on_request(request)])[0]
        if not answer.tool_calls:
            return calls, (answer.response or "").split("Final Answer:")[-1].strip()
        name, arguments, id_ = answer.tool_calls[0].name, answer.tool_calls[0].arguments, f"call_{step}"
        found = re.fullmatch(r'\{"\w+": "([^"]*)"\}', arguments)
        if found is None:
            return calls, ""
        text = found[1]
        calls.append((name, text))
        turns.append(Message("assistant", "", tool_calls=(ToolCall(id_, name, arguments),)))
        turns.append(Message("tool", await called(name, text), tool_call_id=id_, name=name))
    return calls, ""


async def judged(kind, expected, calls, answer):
    """Whether the first call is right, and whether everything is."""
    (name, text), *more = expected
    result = await called(name, text)
    lines = "".join(re.findall(r"(\d+) lines found", result))
    wanted = [(name, text), *[("calculator", f"{lines} * {factor}") for _, factor in more]]
    if more or name == "calculator":
        right = (await called(*wanted[-1])).removeprefix("error: ") in answer
    else:
        right = all(place in answer for place in re.findall(r"^(\S+:\d+):", result, re.M) if kind == "which")
    return calls[:1] == wanted[:1], right and calls == wanted and answer.startswith(f"{lines} line" if lines else "")


async def evaluate(options):
    """Print how many first calls and how many dialogs are right, by kind."""
    if options.model:
        service = await LlamaCpp.open("asked", LlamaCppOptions(path=options.model, context=4096, slots=4))
    else:
        service = await Demo.open("tinydemo", DemoOptions())
    asked, first, right = Counter(), Counter(), Counter()
    for kind, question, expected in cases():
        calls, answer = await dialog(service, question)
        begun, good = await judged(kind, expected, calls, answer)
        asked[kind], first[kind], right[kind] = asked[kind] + 1, first[kind] + begun, right[kind] + good
        if options.show and not good:
            print(f"{kind}: {question} -> {calls} {answer!r}")
    for kind, count in asked.items():
        print(f"{kind:10} first call {first[kind]:3}, all {right[kind]:3} of {count}")
    print(f"first calls {first.total()} of {asked.total()}")
    await service.aclose()


def main():
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--show", action="store_true", help="print the dialogs that are not right")
    asyncio.run(evaluate(parser.parse_args()))


if __name__ == "__main__":
    main()
