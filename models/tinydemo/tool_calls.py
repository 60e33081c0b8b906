"""Chats in which the model calls a tool, or answers although it might."""

import json

from follow_ups import message, turns
from outside import made_up
from small_talk import talk
from topics import tokengrid
from words import ANIMALS, CITIES, FOODS, PLACES, SUBJECTS, THINGS


CALCULATOR = ["{e}", "What is {e}?", "How much is {e}?", "Work out {e}", "Calculate {e}.", "Please compute {e}"]


def expression(r):
    """An arithmetic expression."""
    numbers = [str(r.randint(0, r.choice([9, 99]))) for _ in range(3)]
    signs = [r.choice("+-*/") for _ in range(2)]
    return r.choice(
        [f"{numbers[0]} {signs[0]} {numbers[1]}"] * 2
        + [
            f"({numbers[0]} {signs[0]} {numbers[1]}) {signs[1]} {numbers[2]}",
            f"{numbers[0]} {signs[0]} {numbers[1]} {signs[1]} {numbers[2]}",
        ]
    )


def call(name, **arguments):
    """The text of a tool call."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def tool_turns(r):
    """Of a kind of tool: how it is offered, the question, and the turns up to the answer."""
    city, a, b = r.choice(CITIES), r.randint(1, 99), r.randint(1, 99)
    kind = r.random()
    if kind < 0.2:
        weather = f"{r.randint(-5, 30)} degrees and {r.choice(['sunny', 'rainy', 'cloudy', 'windy'])}"
        question = r.choice([f"What is the weather in {city}?", f"How is the weather in {city} today?"])
        return (
            "get_weather(city)",
            question,
            [call("get_weather", city=city), weather, f"The weather in {city} is {weather}."],
        )
    if kind < 0.35:
        time = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        return (
            "get_time(city)",
            f"What time is it in {city}?",
            [call("get_time", city=city), time, f"It is {time} in {city}."],
        )
    if kind < 0.5:
        return (
            "add(a, b)",
            f"Use the tool to add {a} and {b}.",
            [call("add", a=a, b=b), str(a + b), f"{a} + {b} = {a + b}"],
        )
    if kind < 0.7:
        sum_, result = expression(r), str(r.randint(0, 9999))
        return (
            "calculator(expression)",
            r.choice(CALCULATOR).format(e=sum_),
            [call("calculator", expression=sum_), result, f"It is {result}."],
        )
    word = r.choice([*FOODS, *ANIMALS, *THINGS, *SUBJECTS, made_up(r)])
    lines = [
        f"{r.choice(PLACES)}.txt:{r.randint(1, 9)}: The {r.choice(ANIMALS)} has {r.randint(2, 20)} {word}."
        for _ in range(r.randint(1, 4))
    ]
    found = "\n".join([*lines, f"{len(lines)} lines found"])
    if r.random() < 0.4:
        return "search_notes(text)", f'Which lines mention "{word}"?', [call("search_notes", text=word), found, found]
    if r.random() < 0.3:
        return (
            "search_notes(text)",
            f'How many lines mention "{word}"?',
            [call("search_notes", text=word), found, f"{len(lines)} lines mention it."],
        )
    product = str(len(lines) * a)
    return (
        "search_notes(text)",
        f'How many lines mention "{word}", times {a}?',
        [
            call("search_notes", text=word),
            found,
            call("calculator", expression=f"{len(lines)} * {a}"),
            product,
            f"{len(lines)} lines mention it, so it is {product}.",
        ],
    )


def tool_chat(r):
    """A chat in which the model calls a tool, or answers although it might."""
    tools = [
        "get_weather(city)",
        "add(a, b)",
        "get_time(city)",
        "search(query)",
        "calculator(expression)",
        "search_notes(text)",
    ]
    needed, question, told = tool_turns(r)
    offered = r.sample(tools, r.randint(1, 4))
    if needed == "search_notes(text)":
        offered = ["calculator(expression)", needed]
    if needed not in offered:
        offered.append(needed)
    chat = [message("system", "You can call these tools:\n" + "\n".join(offered))]
    if r.random() < 0.15:
        return chat + turns(r.choice([talk, tokengrid])(r))
    roles = ["assistant", "tool"] * 3
    told = told if r.random() < 0.7 else told[:1]
    return chat + [message("user", question)] + [message(role, text) for role, text in zip(roles, told)]
