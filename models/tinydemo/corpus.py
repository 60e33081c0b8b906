"""Write the demo model's corpus: chats from templates of our own, no text of others.

    python corpus.py OUT.jsonl COUNT SEED [long|foreign|tools]

One line is one chat: a JSON list of {"role": ..., "content": ...}. The same count and seed give the same file. With
`long`, most chats have several turns or a system prompt that is none of the model's business. With `foreign`, COUNT
long system prompts stand each before some chats, one after the other. With `tools`, nearly half of them have tools.
"""

import itertools
import json
import random
import sys
from pathlib import Path

import phrases
from arithmetic import ARITHMETIC
from exchanges import exchange
from follow_ups import follow_up, message, turns
from foreign import long_system
from outside import outside
from systems import SYSTEM, foreign_system
from tool_calls import react, tool_chat

HERE = Path(__file__).parent
QUESTIONS = ("questions.tsv", "strangers.tsv")


def plain(question):
    """A question without capitals and signs."""
    return "".join(sign for sign in question.lower() if sign.isalnum() or sign in " +-").strip()


def held_out():
    """The questions that the model is judged by, which no chat may have."""
    lines = [line for name in QUESTIONS for line in (HERE / name).read_text().splitlines()]
    return {plain(question) for kind, question, _ in (line.split("\t") for line in lines) if kind != "follow"}


HELD_OUT = held_out()
BEFORE = [plain(each) + " " for each in phrases.BEFORE]
BEHIND = [" " + plain(each) for each in (*phrases.AFTER, *phrases.WITHIN)]


def is_held_out(question):
    """Whether the model is judged by this question, with or without what `dressed` puts around one."""
    text = plain(question)
    parts = (text.split(" ", 1)[-1], text.rsplit(" ", 1)[0])
    if {text, *(part for part in parts if part.count(" ") > 1)} & HELD_OUT:
        return True
    for before in BEFORE:
        text = text.removeprefix(before)
    for behind in BEHIND:
        text = text.removesuffix(behind)
    return text in HELD_OUT


def chat(r, most=0.25, long=False, tools=0.08):
    """One chat of one or several exchanges; `most` of them have more than one, and `tools` of them have tools."""
    if r.random() < tools:
        return tool_chat(r)
    if r.random() < 0.1:
        return turns(*(ARITHMETIC(r) for _ in range(r.randint(2, 7))))
    kind = r.random()
    if kind < 0.25:
        messages = [message("system", r.choice(SYSTEM))]
    elif kind < (0.7 if long else 0.3):
        messages = [message("system", foreign_system(r, r.randint(1, r.choice([3, 8, 20]) if long else 3)))]
    else:
        messages = []
    if r.random() > most:
        return messages + turns(exchange(r))
    several = [pair for _ in range(r.choice([0, 0, 1, 2])) for pair in turns(exchange(r))]
    last = follow_up(r) if r.random() < 0.8 else turns(exchange(r), exchange(r))
    return messages + several + last


def behind_foreign(r):
    """Some chats behind one long system prompt, of a program that is not ours or of an agent."""
    if r.random() < 0.1:
        return react(r, r.randint(3, 5))
    system = message("system", long_system(r, r.randint(200, r.choice([1000, 2500, 3500]))))
    return [[system, *behind_prompt(r)] for _ in range(6)]


def behind_prompt(r):
    """What is asked behind a long prompt: often what is refused, or a sum, for both are forgotten there."""
    kind = r.random()
    if kind < 0.5:
        return turns((outside if kind < 0.33 else ARITHMETIC)(r))
    return without_system(chat(r, tools=0.0))


def without_system(messages):
    """The chat without its own system prompt."""
    return messages[1:] if messages[0]["role"] == "system" else messages


def chats(r, kind):
    """Chats without end."""
    while True:
        if kind == "foreign":
            yield from behind_foreign(r)
        else:
            yield chat(r, 0.5 if kind == "long" else 0.25, kind == "long", 0.45 if kind == "tools" else 0.08)


def main():
    """Write the file that the command line asks for."""
    out, size, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    r = random.Random(seed)
    with open(out, "w", encoding="utf-8") as file:
        for messages in itertools.islice(chats(r, "".join(sys.argv[4:])), size):
            if not any(is_held_out(each["content"]) for each in messages if each["role"] == "user"):
                file.write(json.dumps(messages) + "\n")


if __name__ == "__main__":
    main()
