"""Turns as models may write them, made at random, with the messages that a dialog must show of them."""

import random

import msgspec

Message = tuple[str, str]

WORDS = [
    "Action:",
    "Thought:",
    "I",
    "will  look",
    "at",
    "{it}",
    '"now"',
    "Final",
    "Answer:",
    "🙂",
    "`x`",
    "a: b",
    "\tso",
]
VALUES = ["}", "{", '"', "\\", "\nAction: x\n", "Final Answer: y", "```", "Paris", "é🙂", "", "a b"]
MARKS = [
    "Thought:",
    "Action:",
    "Action Input:",
    "Observation:",
    "Final Answer:",
    "```",
    "```json\n",
    "{",
    "}",
    '"a": 1',
]


def prose(chance: random.Random) -> str:
    """Some lines of text; a word that gives structure stands in it, but never where a line begins."""
    lines = [" ".join(["so", *chance.choices(WORDS, k=chance.randrange(6))]) for _ in range(chance.randrange(1, 4))]
    return chance.choice(["\n", "\n\n", "\n  "]).join(line.rstrip() for line in lines)


def in_pieces(chance: random.Random, text: str) -> list[str]:
    """The text, cut at random."""
    size = chance.choice([1, 2, 4, 16])
    pieces, at = [], 0
    while at < len(text):
        step = chance.randint(1, 2 * size - 1)
        pieces.append(text[at : at + step])
        at += step
    return pieces


def calling(chance: random.Random) -> tuple[str, list[Message]]:
    """A turn that calls tools."""
    text, messages = "", list[Message]()
    for _ in range(chance.randrange(1, 3)):
        if not text or chance.random() < 0.5:
            thought = prose(chance)
            text += (
                chance.choice(["Thought: ", "**Thought:** ", "thought:\n"]) + thought + chance.choice(["\n", "\n\n"])
            )
            messages.append(("thought", thought))
        for _ in range(chance.randrange(1, 3)):
            keys = chance.sample(VALUES[7:], chance.randrange(3))
            arguments = {key: chance.choice([*VALUES, 1, None, [{}]]) for key in keys}
            tool = chance.choice(["see", "add_2"])
            text += call(chance, tool, arguments)
            messages.append(("action", msgspec.json.encode({"tool": tool, "arguments": arguments}).decode()))
    invented = chance.choice(["", "", "Observation: 5\n", "Final Answer: 7"])
    return text + (invented + prose(chance) if invented else ""), messages


def call(chance: random.Random, tool: str, arguments: dict[str, object]) -> str:
    """A call in one of the forms in which models write it."""
    json = msgspec.json.encode(arguments).decode()
    if chance.random() < 0.3:
        json = msgspec.json.format(json, indent=2)
    whole = msgspec.json.encode({"tool": tool, "arguments": arguments}).decode()
    forms = [
        f"Action: {tool}\nAction Input: {json}\n",
        f"Action: {tool}\nAction Input:\n```json\n{json}\n```\n",
        f"**Action:** `{tool}`\n**Action Input:** {json}\n",
        f"Action: {whole}\n",
        f"Action:\n```\n{whole}\n```\n\n",
        f"Action: {tool} {json}\n",
    ]
    if not arguments:
        forms += [f"Action: {tool}\n", f"Action: {tool}\nAction Input:\n", f"Action: {tool}\nAction Input: None\n"]
    return chance.choice(forms)


def answering(chance: random.Random) -> tuple[str, list[Message]]:
    """A turn that answers; without a word for it as well, if there is no thought before."""
    answer = prose(chance) + chance.choice(["", " \n"])
    if chance.random() < 0.3:
        return answer, [("answer", answer)]
    answer += chance.choice(["", "\nAction: see\nThought: x"])
    if chance.random() < 0.3:
        return "Final Answer: " + answer, [("answer", answer)]
    thought = prose(chance)
    return f"Thought: {thought}\n\nFinal Answer: {answer}", [("thought", thought), ("answer", answer)]


def nonsense(chance: random.Random) -> str:
    """Anything."""
    words = [
        chance.choice([*MARKS, *WORDS, *VALUES, "see", "none", "\n", "\n", "\n"]) for _ in range(chance.randrange(30))
    ]
    return chance.choice(["", " ", "\n"]).join(words)
