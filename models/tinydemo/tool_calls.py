"""Chats in which the model calls tools, or answers although it might: natively, and in an agent's ReAct text."""

import json

from exchanges import list_of_things
from follow_ups import message, turns
from foreign import NOUNS, VERBS
from outside import made_up, outside
from rare import rare
from records import FORCED
from small_talk import talk
from systems import SYSTEM, foreign_system
from topics import tokengrid
from words import ANIMALS, CITIES, FOODS, NAMES, PLACES, SUBJECTS, THINGS

KNOWN_TOOLS = {
    "get_weather": ["city"],
    "add": ["a", "b"],
    "get_time": ["city"],
    "search": ["query"],
    "calculator": ["expression"],
    "search_notes": ["text"],
    "to_metres": ["amount", "unit"],
}
DESCRIPTIONS = {
    "calculator": "Work out an arithmetic expression of numbers, + - * / and parentheses.",
    "search_notes": "Find the lines of the notes that contain a text, in upper or lower case.",
    "get_weather": "Tell the weather in a city.",
    "get_time": "Tell the time in a city.",
    "to_metres": "Convert a length to metres.",
}
CALCULATOR = """{e}|What is {e}?|What is {e}?|How much is {e}?|Work out {e}|Calculate {e}.|Please compute {e}|{e} = ?
What does {e} make?|I need {e}|what's {e}|Tell me what {e} is.|Compute {e}.|Can you work out {e}?|Solve {e}.
Use the calculator for {e}.""".replace("\n", "|").split("|")
LINES_ASKED = """Which lines mention "{w}"?|Which lines mention "{w}"?|Which lines contain "{w}"?
Where is "{w}" mentioned?
Find "{w}" in the notes.|Show me the lines with "{w}".|Search the notes for "{w}".|What do the notes say about "{w}"?
Which notes mention "{w}"?|List the lines that mention "{w}".""".replace("\n", "|").split("|")
COUNT_ASKED = (
    """How many lines mention "{w}"?|How many lines mention "{w}"?|How often is "{w}" mentioned?
How many lines contain "{w}"?|Count the lines that mention "{w}".|how many lines have "{w}"
""".strip()
    .replace("\n", "|")
    .split("|")
)

WITH_THEIR_NUMBER = """, times {}?=* multiply|, times {}?=* multiply|, times {}?=* multiply
, multiplied by {}?=* multiply| times {}?=* multiply|, and what is that times {}?=* multiply|, plus {}?=+ add
, and what is that plus {}?=+ add|, minus {}?=- subtract|, divided by {}?=/ divide""".replace("\n", "|").split("|")
"""What is to be done with the number of lines: the end of a question, the sign, and what it is called."""

SPOKEN = {
    "What is {a} times {b}?": "{a} * {b}",
    "{a} times {b}": "{a} * {b}",
    "What is {a} multiplied by {b}?": "{a} * {b}",
    "Multiply {a} by {b}.": "{a} * {b}",
    "What is {a} divided by {b}?": "{a} / {b}",
    "Divide {a} by {b}.": "{a} / {b}",
    "What is {a} plus {b}?": "{a} + {b}",
    "Add {a} and {b}.": "{a} + {b}",
    "What is {a} minus {b}?": "{a} - {b}",
    "Subtract {b} from {a}.": "{a} - {b}",
    "How much is {a} times {b}?": "{a} * {b}",
    "How much is {a} plus {b}?": "{a} + {b}",
}
"""Sums in words, and what a calculator is given."""


def number(r):
    """A number of one to four digits, sometimes with a fraction."""
    whole = r.randint(0, r.choice([9, 20, 99, 99, 999, 9999]))
    return str(whole) if r.random() < 0.85 else f"{whole}.{r.choice(['5', '25', '75', str(r.randint(1, 99))])}"


def expression(r):
    """An arithmetic expression."""
    a, b, c = number(r), number(r), number(r)
    s, t = r.choice("+-*/"), r.choice("+-*/")
    forms = [f"{a} {s} {b}"] * 4 + [f"({a} {s} {b}) {t} {c}"] * 2 + [f"{a} {s} ({b} {t} {c})", f"{a} {s} {b} {t} {c}"]
    made = r.choice(forms)
    return made.replace(" ", "") if r.random() < 0.1 else made


def word(r):
    """What is looked for; most often one that can only be copied."""
    made = rare(r) if r.random() < 0.6 else r.choice([*FOODS, *ANIMALS, *THINGS, *SUBJECTS, *NOUNS, *NAMES, made_up(r)])
    return made if r.random() < 0.9 else f"{made} {r.choice([*NOUNS, rare(r)])}"


def found(r, text):
    """What a search gives, and how many lines."""
    count = r.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4])
    files = [r.choice([r.choice(PLACES), r.choice(NOUNS), rare(r), rare(r)]) for _ in range(r.choice([1, 2, 2, 3]))]
    where = sorted({(r.choice(files), r.randint(1, r.choice([6, 30]))) for _ in range(count)})
    places = [f"{file}.txt:{line}" for file, line in where]
    lines = [f"{place}: {note(r, text)}" for place in places]
    return "\n".join([*lines, f"{len(places)} lines found"]), places


def note(r, text):
    """A line of the notes."""
    form = r.choice(
        [
            "The {a} has {d} {w}.",
            "A {w} is sold for {d} at the {p}.",
            "There are {d} {a}s behind the {w} of the {p}.",
            "{w} {o} is {d}.{d} {o}.",
            "{n} saw the {w} in {c}, and {d} {a}s stood in each {p}.",
            "The {p} gives {d} kg of {w} in a {o}.",
            "{n} likes {w}.",
            "The {o} of {x} is {d}, and {w} {x} {y}.",
            "{x} {w} {y} {o} {d}.",
            "In {p} we {y} {d} {w}s a {o}.",
        ]
    )
    return form.format(
        a=r.choice(ANIMALS),
        d=r.randint(2, 90),
        w=text,
        p=r.choice(PLACES),
        o=r.choice(NOUNS),
        n=r.choice(NAMES),
        c=r.choice(CITIES),
        x=rare(r),
        y=rare(r),
    )


def calculation(r):
    """The calculator, which may fail."""
    sum_, result = expression(r), result_of(r)
    question = r.choice(CALCULATOR).format(e=sum_)
    if r.random() < 0.3:
        a, b = number(r), number(r)
        form, sum_ = r.choice(list(SPOKEN.items()))
        question, sum_ = form.format(a=a, b=b), sum_.format(a=a, b=b)
    thought = "This is a sum for the calculator."
    if r.random() < 0.12:
        fault = r.choice([f"{sum_} cannot be worked out", "an expression may have numbers, + - * / and parentheses"])
        result = f"error: {fault}"
        answer = f"I cannot tell: {fault}."
    else:
        answer = f"It is {result}."
    return question, [(thought, "calculator", {"expression": sum_}, result)], answer


def result_of(r):
    """What a calculator gives: it is not what the sum makes, so the model cannot but copy it."""
    kind, made = r.random(), number(r)
    if kind < 0.1:
        return f"-{made}"
    if kind < 0.2:
        return f"{r.randint(0, 99)}.{r.randint(10**9, 10**16)}"
    return f"{r.randint(1, 99999)}.0" if kind < 0.25 else str(r.randint(0, 10**6)) if kind < 0.4 else made


def search(r):
    """The notes, and what is to be done with the lines."""
    text = word(r)
    lines, places = found(r, text)
    count, many = len(places), "1 line mentions" if len(places) == 1 else f"{len(places)} lines mention"
    steps = [(f'I must look for "{text}" in the notes.', "search_notes", {"text": text}, lines)]
    kind = r.random()
    if kind < 0.35:
        listed = ", ".join(places)
        return r.choice(LINES_ASKED).format(w=text), steps, f"{many} it{': ' if places else '.'}{listed}"
    question = r.choice(COUNT_ASKED).format(w=text)
    if kind < 0.6:
        return question, steps, f"{many} it."
    other, result = number(r), result_of(r)
    end, deed = r.choice(WITH_THEIR_NUMBER).split("=")
    sign, name = deed.split()
    question = question.rstrip("?.") + end.format(other)
    thought = f"The notes have {count} such lines. Now I can {name}."
    steps.append((thought, "calculator", {"expression": f"{count} {sign} {other}"}, result))
    return question, steps, f"{many} it, so it is {result}."


def weather(r):
    """The weather or the time in a city."""
    city = r.choice(CITIES) if r.random() < 0.5 else r.choice([made_up, rare])(r).capitalize()
    if r.random() < 0.5:
        time = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        question = r.choice([f"What time is it in {city}?", f"Tell me the time in {city}.", f"time in {city}"])
        return question, [("I must ask for the time.", "get_time", {"city": city}, time)], f"It is {time} in {city}."
    said = f"{r.randint(-5, 30)} degrees and {r.choice(['sunny', 'rainy', 'cloudy', 'windy'])}"
    forms = ["What is the weather in {}?", "How is the weather in {} today?", "weather in {}", "Is it warm in {}?"]
    step = ("I must ask for the weather.", "get_weather", {"city": city}, said)
    return r.choice(forms).format(city), [step], f"The weather in {city} is {said}."


def simple(r):
    """Two numbers for a tool."""
    a, b = r.randint(1, 99), r.randint(1, 99)
    if r.random() < 0.5:
        step = ("This is a sum for the tool.", "add", {"a": a, "b": b}, str(a + b))
        return f"Use the tool to add {a} and {b}.", [step], f"{a} + {b} = {a + b}"
    unit = r.choice(["mile", "yard", "foot"])
    metres = number(r)
    step = (f"I convert {a} {unit}.", "to_metres", {"amount": a, "unit": unit}, metres)
    return f"How many metres are {a} {unit}s?", [step], f"{a} {unit} are {metres} metres."


def any_tool(r):
    """A tool that was never heard of."""
    verb, noun = r.choice(VERBS), r.choice([r.choice(NOUNS), made_up(r), rare(r)])
    name = r.choice([f"{verb}_{noun}", f"{verb}{noun.capitalize()}", f"{noun}_{verb}", noun])
    keys = r.sample(NOUNS, r.randint(1, 2))
    values = [r.choice([word, lambda r: r.randint(0, 999)])(r) for _ in keys]
    pairs = " and ".join(f"{key} {value}" for key, value in zip(keys, values))
    first = values[0]
    question = r.choice(
        [
            f"Use {name} with {pairs}.",
            f"Call {name} with {pairs}.",
            f"{verb.capitalize()} the {noun} with {pairs}.",
            f"Please {verb} the {noun}: {pairs}.",
        ]
        + [f"{verb.capitalize()} the {noun} {first}.", f"Can you {verb} the {noun} {first}?"] * (len(keys) == 1)
    )
    result = r.choice([number(r), word(r), f"{word(r)} {number(r)}", "ok", "done"])
    return question, [(f"I must use {name}.", name, dict(zip(keys, values)), result)], f"The result is {result}."


KINDS = {calculation: 5, search: 11, weather: 1.5, simple: 0.5, any_tool: 2}


def call(name, arguments):
    """The text of a tool call."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def offered(r, steps):
    """Tools with their arguments: those that are needed, and others."""
    tools = {tool: list(arguments) for _, tool, arguments, _ in steps}
    if tools.keys() <= {"calculator", "search_notes"} and r.random() < 0.7:
        return {name: KNOWN_TOOLS[name] for name in ("calculator", "search_notes")}
    for name in r.sample(list(KNOWN_TOOLS), r.randint(0, 3)):
        tools.setdefault(name, KNOWN_TOOLS[name])
    while r.random() < 0.3:
        tools[f"{r.choice(VERBS)}_{r.choice(NOUNS)}"] = r.sample(NOUNS, r.randint(1, 3))
    return {name: tools[name] for name in r.sample(list(tools), len(tools))}


def scene(r):
    """A question, the steps to its answer (thought, tool, arguments, result), the answer, and the tools."""
    if r.random() < 0.12:
        question, answer = r.choice([talk, tokengrid, outside, list_of_things])(r)
        return question, [], answer, offered(r, [("", name, {}, "") for name in ("calculator", "search_notes")])
    question, steps, answer = r.choices(list(KINDS), list(KINDS.values()))[0](r)
    return question, steps, answer, offered(r, steps)


AGENT = """Answer the question with the help of the tools. Before you call tools, say in a sentence what you need and why,
beginning with "Thought:".
When you know the answer, write it behind the words "Final Answer:"."""
"""What an agent tells a model that calls tools natively; it stands before the tools."""


def tool_chat(r):
    """A chat in which the model calls a tool, or answers although it might; up to one of its turns."""
    question, steps, answer, tools = scene(r)
    listed = "\n".join(f"{name}({', '.join(arguments)})" for name, arguments in tools.items())
    agent, told = r.random() < 0.7, ""
    if agent:
        told = f"{r.choice([r.choice(SYSTEM), foreign_system(r, 1)])}\n\n" * (r.random() < 0.2) + AGENT
    elif r.random() < 0.4:
        told = r.choice([r.choice(SYSTEM), foreign_system(r, r.randint(1, 3))])
    chat = [message("system", told)] * bool(told)
    chat += [message("system", "You can call these tools:\n" + listed), message("user", question)]
    calls = [(thought, call(tool, arguments), result) for thought, tool, arguments, result in steps]
    until = min(r.randint(0, len(calls) + 1), len(calls))
    for _, made, result in calls[:until]:
        chat += [message("assistant", FORCED + made + FORCED if agent else made), message("tool", result)]
    if until < len(calls):
        thought, made, _ = calls[until]
        return [*chat, message("assistant", f"Thought: {thought}\n{made}" if agent else made)]
    known = "I know the answer." if steps and not answer.startswith("I cannot") else "That did not work."
    said = f"Thought: {known}\nFinal Answer: {answer}" if steps else f"Final Answer: {answer}"
    return [*chat, message("assistant", said if agent else answer)]


REACT = """You answer a question step by step. Write nothing but lines of this form:

Thought: what you know, and what to do next
Action: the name of one tool
Action Input: its arguments, as one JSON object

Then stop. The result will be given to you as

Observation: the result

Go on with a Thought. Several Actions, each with its Action Input, may follow one Thought; they run side by side. Never
write an Observation yourself.
When you know the answer, write

Thought: I know the answer
Final Answer: the answer

The tools:"""


def described(r, name, arguments):
    """A tool as an agent's prompt has it."""
    properties = {each: {"type": r.choice(["string", "string", "integer", "number"])} for each in arguments}
    schema = {"type": "object", "properties": properties, "required": arguments, "additionalProperties": False}
    said = DESCRIPTIONS.get(name) or " ".join(r.choice([r.choice(NOUNS), r.choice(VERBS)]) for _ in range(6)) + "."
    return f"\n\n{name}: {said}\nIts arguments, as JSON schema: {json.dumps(schema, separators=(',', ':'))}"


def react_system(r, tools):
    """What an agent tells a model that is asked in text."""
    return REACT + "".join(described(r, *tool) for tool in tools.items())


def react_chats(r, system, question, steps, answer):
    """The requests of an agent that is asked in text: each holds all that was before."""
    prompt, chats = f"Question: {question}", []
    for thought, tool, arguments, result in steps:
        said = f"Thought: {thought}\nAction: {tool}\nAction Input: {json.dumps(arguments)}"
        chats.append([message("system", system), *turns((prompt, said))])
        told = json.dumps(arguments, separators=(",", ":"))
        prompt += f"\n\nThought: {thought}\nAction: {tool}\nAction Input: {told}\nObservation: {result}"
    said = f"Thought: I know the answer\nFinal Answer: {answer}"
    return [*chats, [message("system", system), *turns((prompt, said))]]


def react(r, chats):
    """As many chats of an agent as fit behind one system prompt of its own."""
    made, tools = [], {}
    for _ in range(chats):
        question, steps, answer, offered_tools = scene(r)
        if len(tools.keys() | offered_tools) < 7:
            tools |= offered_tools
            made.append((question, steps, answer))
    system = react_system(r, tools)
    return [chat for question, steps, answer in made for chat in react_chats(r, system, question, steps, answer)]
