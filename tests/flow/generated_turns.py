"""Turns as models may write them, made at random, with the messages that a dialog must show of them."""

import random

import msgspec

from tg_schema import ToolCallDelta

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
    "\n```\n",
    "````\n",
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


def fenced(chance: random.Random, text: str) -> str:
    """The text, which begins with a word that gives structure, as models put it into a code block."""
    ticks = chance.choice(["```", "```", "````"])
    return f"{ticks}{chance.choice(['', 'text', ' markdown'])}\n{text.rstrip()}\n{ticks}{chance.choice(['', chr(10)])}"


def code(chance: random.Random) -> str:
    """A block of code as it stands in prose."""
    return f"```{chance.choice(['py', 'sh'])}\n{chance.choice(['x = {', 'Thought: x', 'ls', ''])}\n```"


def calling(chance: random.Random) -> tuple[str, list[Message]]:
    """A turn that calls tools."""
    text, messages = "", list[Message]()
    for _ in range(chance.randrange(1, 3)):
        begins = not text or chance.random() < 0.5
        if begins:
            thought = prose(chance)
            text += chance.choice(["Thought: ", "**Thought:** ", "thought:\n"]) + thought
            text += chance.choice(["\n", "\n\n"])
            messages.append(("thought", thought))
        for _ in range(chance.randrange(1, 3)):
            keys = chance.sample(VALUES[7:], chance.randrange(3))
            arguments: dict[str, object] = {key: chance.choice([*VALUES, 1, None, [{}]]) for key in keys}
            tool = chance.choice(["see", "add_2"])
            written = call(chance, tool, arguments)
            text += fenced(chance, written).rstrip() + "\n" if chance.random() < 0.3 else written
            messages.append(("action", msgspec.json.encode({"tool": tool, "arguments": arguments}).decode()))
    if chance.random() < 0.2:
        return fenced(chance, text), messages
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
        answer = unmarked(chance) if chance.random() < 0.5 else answer
        return answer, [("answer", answer)]
    if chance.random() < 0.3:
        answer = answer.rstrip() + chance.choice(["", "\n" + code(chance), "\n" + code(chance) + "\nso"])
        thought = prose(chance)
        text = f"Thought: {thought}\n{chance.choice(['', '```' + chr(10)])}Final Answer: {answer}"
        if text.count("```") % 2:
            return text + "\n```" + chance.choice(["", "\n"]), [("thought", thought), ("answer", answer)]
        return fenced(chance, text), [("thought", thought), ("answer", answer)]
    answer += chance.choice(["", "\nAction: see\nThought: x", "\n```\nThought: x\n```"])
    if chance.random() < 0.3:
        return "Final Answer: " + answer, [("answer", answer)]
    thought = prose(chance)
    return f"Thought: {thought}\n\nFinal Answer: {answer}", [("thought", thought), ("answer", answer)]


def unmarked(chance: random.Random) -> str:
    """A long answer without a word for it, in which a line says `Thought:` all the same."""
    word = chance.choice(["Thought:", "**Thought:**", "# Thought:", "thought: "])
    long = "\n".join(prose(chance) for _ in range(30))
    return "\n".join(
        [long[: chance.randrange(241, 400)].rstrip().ljust(242, "x"), word + prose(chance), code(chance), "so"]
    )


def native_calling(chance: random.Random) -> tuple[list[str | ToolCallDelta], list[Message]]:
    """A turn that calls tools of the provider's: perhaps a thought first, then the pieces of calls, which alternate."""
    pieces: list[str | ToolCallDelta] = []
    messages: list[Message] = []
    if chance.random() < 0.7:
        thought, marked = prose(chance), chance.random() < 0.5
        text = f"Thought: {thought}" if marked else thought
        pieces += in_pieces(chance, fenced(chance, text) if marked and chance.random() < 0.3 else text)
        messages.append(("thought", thought))
    calls: list[list[ToolCallDelta]] = []
    for index in range(chance.randrange(1, 4)):
        json = msgspec.json.encode({"text": chance.choice(["}", '"', "é", "Action: x"])}).decode()
        arguments = [ToolCallDelta(index, arguments=piece) for piece in in_pieces(chance, json)]
        calls.append([ToolCallDelta(index, f"c{index}", "see"), *arguments])
        messages.append(("action", f'{{"tool":"see","arguments":{json}}}'))
    alternating = chance.random() < 0.5
    while any(calls):
        open_calls = [call for call in calls if call]
        pieces.append((chance.choice(open_calls) if alternating else open_calls[0]).pop(0))
    return pieces, messages


def nonsense(chance: random.Random) -> str:
    """Anything."""
    words = [
        chance.choice([*MARKS, *WORDS, *VALUES, "see", "none", "\n", "\n", "\n"]) for _ in range(chance.randrange(30))
    ]
    return chance.choice(["", " ", "\n"]).join(words)
