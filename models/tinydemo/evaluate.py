"""Ask a model file the questions that it was never trained on, and judge the answers. Needs tokengrid-llama[cpp].

    python evaluate.py MODEL.gguf [--show] [--system FILE] [--questions FILE]

FILE, questions.tsv or strangers.tsv, has a kind, a question (the turns of a chat apart by " // ") and a pattern of a
good answer. A refusal must be honest and offer something, and a list must not say anything twice. The sums are another
list: 100 of them, of which the number must be right.
"""

import argparse
import asyncio
import random
import re
from collections import Counter
from pathlib import Path

from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse

QUESTIONS = Path(__file__).parent / "questions.tsv"
REFUSED = re.compile(r"(do not|cannot|not learned|beyond|too (small|hard)).* (I can|shall I|ask me to) ", re.I | re.S)
LISTED = {"FIRST": 0, "SECOND": 1, "THIRD": 2, "LAST": -1}
MOST_TOKENS = 300


def judged(answer, pattern, earlier):
    """Whether the answer to the last turn is "good", an honest "refusal", or "wrong"."""
    if pattern in LISTED:
        items = re.findall(r"^\d+\. (.+)$", earlier[0], re.M)
        wanted = items[LISTED[pattern] :][:1]
        pattern = re.escape(wanted[0]) + r"\W*$" if wanted else "(?!)"
    if pattern.startswith("REFUSAL"):
        pattern = "|".join([REFUSED.pattern, *pattern.split("|")[1:]])
    listed = re.findall(r"^\d+\. (.+)$", answer, re.M)
    if re.search(pattern, answer, re.I | re.S) and len(set(listed)) == len(listed):
        return "good"
    return "refused" if REFUSED.search(answer) else "wrong"


def sums():
    """A hundred sums and differences up to 100: question and pattern."""
    r = random.Random(100)
    for _ in range(50):
        a, b = r.randint(0, 100), r.randint(0, 100)
        yield f"What is {a} + {b}?", rf"= {a + b}\W*$"
        a, b = max(a, b), min(a, b)
        yield f"What is {a} - {b}?", rf"= {a - b}\W*$"


async def answered(service, questions, system):
    """The answers to the turns of one chat."""
    turns, answers = [], []
    for question in questions:
        turns.append(Message("user", question))
        limits = Sampling(temperature=0, max_tokens=MOST_TOKENS)
        request = TextCompletionRequest(system=system, messages=tuple(turns), sampling=limits)
        records = [record async for record in service.on_request(request)]
        answers.append(TextCompletionResponse.join(records)[0].response or "")
        turns.append(Message("assistant", answers[-1]))
    return answers


async def evaluate(options):
    """Print how many answers are good, by kind."""
    service = await LlamaCpp.open("asked", LlamaCppOptions(path=options.model, context=4096, slots=4))
    lines = [line.split("\t") for line in Path(options.questions).read_text().splitlines()]
    lines += [["sum", *pair] for pair in sums()]
    system = Path(options.system).read_text() if options.system else None
    counts = {}
    for kind, question, pattern in lines:
        questions = question.split(" // ")
        *earlier, answer = await answered(service, questions, system)
        verdict = judged(answer, pattern, earlier)
        counts.setdefault(kind, Counter())[verdict] += 1
        if options.show and verdict != "good":
            print(f"{kind} {verdict}: {question} -> {' // '.join([*earlier, answer])!r}")
    for kind, count in counts.items():
        print(f"{kind:10} good {count['good']:3} refused {count['refused']:3} wrong {count['wrong']:3}")
    await service.aclose()


def main():
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--show", action="store_true", help="print the answers that are not good")
    parser.add_argument("--system", help="a file with a system prompt for all of them")
    parser.add_argument("--questions", default=QUESTIONS, help="a file with other questions")
    asyncio.run(evaluate(parser.parse_args()))


if __name__ == "__main__":
    main()
