"""A question and its answer, of any kind."""

from arithmetic import ARITHMETIC
from copying import echo, quoted, record, relations, retrieval, said_of_oneself
from facts import FACTS
from outside import capitalised, outside
from phrases import mangled, what
from records import neighbours, record_of_any_kind
from small_talk import talk
from stories import poem, story
from topics import tokengrid
from words import AS_THEY_ARE, CAPITALS, LISTS, NUMBERS


def fact(r):
    """What something is."""
    name, short, more = r.choice(FACTS)
    return what(r, name), " ".join([short, *more])


def capital(r):
    """A country's capital."""
    country, city = r.choice(list(CAPITALS.items()))
    question = r.choice(
        [
            "What is the capital of {}?",
            "Which city is the capital of {}?",
            "Name the capital of {}.",
            "the capital of {}?",
            "What's the capital city of {}?",
            "Do you know the capital of {}?",
        ]
    ).format(country)
    return mangled(r, question), f"The capital of {country} is {city}."


def list_of_things(r):
    """Some things of a kind, one a line."""
    kind = r.choice(list(LISTS))
    length = min(r.choice([2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10]), len(LISTS[kind]))
    items = [item if kind in AS_THEY_ARE else capitalised(item) for item in neighbours(r, kind, length)]
    number = r.choice([NUMBERS[length], str(length)])
    question = r.choice(
        [
            "List {n} {k}.",
            "Name {n} {k}.",
            "Give me {n} {k}.",
            "Can you name {n} {k}?",
            "Tell me {n} {k}.",
            "{n} {k}",
            "I need {n} {k}.",
            "Write down {n} {k}.",
            "Please list {n} {k}.",
            "Make a list of {n} {k}.",
            "Show me {n} {k}",
            "I want {n} {k}",
            "Write {n} {k}.",
            "What are {n} {k}?",
            "Which {n} {k} do you know?",
            "Could you give me {n} {k}?",
            "Think of {n} {k}.",
            "Tell me the names of {n} {k}.",
            "Give me a list of {n} {k}.",
            "{n} {k} please",
            "a list with {n} {k}",
            "Enumerate {n} {k}.",
            "I would like {n} {k}.",
            "Give me the names of {n} {k}.",
            "Say {n} {k}.",
            "Can you list {n} {k} for me?",
            "Give {n} examples of {k}.",
            "Name {n} different {k}.",
            "List {n} {k}, each only once.",
            "Please name {n} {k}.",
            "Do you know {n} {k}?",
        ]
    ).format(n=number, k=kind)
    return mangled(r, question), "\n".join(f"{at}. {item}" for at, item in enumerate(items, 1))


WEIGHTS = {
    tokengrid: 46,
    ARITHMETIC: 34,
    outside: 34,
    talk: 28,
    fact: 5,
    story: 6,
    list_of_things: 18,
    echo: 9,
    quoted: 6,
    said_of_oneself: 6,
    capital: 2,
    record: 2,
    record_of_any_kind: 6,
    relations: 3,
    retrieval: 3,
    poem: 1.5,
}


def exchange(r):
    """A question and its answer, of any kind."""
    return r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0](r)
