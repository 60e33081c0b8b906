"""Questions with an answer in JSON: keys of any name, as asked for, or as a schema forces them."""

import json

from foreign import NOUNS, QUALITIES
from outside import capitalised, made_up
from topics import tokengrid
from words import ADJECTIVES, ANIMALS, CITIES, COLOURS, FOODS, LISTS, NAMES, NUMBERS, PLACES, SUBJECTS, THINGS

FORCED = "\x01"
"""Stands around what a schema forces, of which the model learns nothing: see train.py."""

TEXTS = {
    "name": NAMES,
    "first_name": NAMES,
    "author": NAMES,
    "user": NAMES,
    "city": CITIES,
    "place": [*CITIES, *PLACES],
    "country": "France Italy Germany Spain Norway Japan Peru India Kenya Egypt".split(),
    "colour": COLOURS,
    "color": COLOURS,
    "animal": ANIMALS,
    "pet": ANIMALS,
    "food": FOODS,
    "drink": "tea coffee water milk juice".split(),
    "product": THINGS,
    "item": [*THINGS, *FOODS],
    "title": [*SUBJECTS, *PLACES],
    "topic": SUBJECTS,
    "job": "teacher doctor baker farmer pilot cook nurse driver painter writer".split(),
    "language": "English French German Python Java Go Rust".split(),
    "status": "open closed done ready active new".split(),
    "mood": ADJECTIVES,
    "size": "small medium large".split(),
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "month": "January February March April May June July August September October November December".split(),
    "unit": "kg metre litre mile hour minute".split(),
    "sentiment": "positive negative neutral".split(),
    "category": "news sport music food travel work".split(),
}
NUMBERED = (
    "age year price count amount number quantity height weight score rating pages total seats temperature id".split()
)
FLAGS = "active paid married open done available admin new valid ok is_member in_stock".split()


def field(r):
    """A key, how a question says its value, and the value."""
    kind = r.random()
    if kind < 0.55:
        key = r.choice(list(TEXTS))
        value = r.choice(TEXTS[key]) if r.random() < 0.75 else made_up(r)
        value = capitalised(value) if r.random() < 0.3 else value
    elif kind < 0.65:
        key, value = r.choice(NOUNS), f"{r.choice(QUALITIES)} {r.choice(NOUNS)}"
    elif kind < 0.9:
        key = r.choice(NUMBERED)
        value = r.randint(0, r.choice([9, 99, 99, 2030])) if r.random() < 0.85 else r.randint(1, 999) / 10
    elif kind < 0.96:
        key, value = r.choice(FLAGS), r.random() < 0.5
    else:
        key = r.choice(["tags", "items", "names", "colours", "hobbies"])
        pool = NAMES if key == "names" else COLOURS if key == "colours" else [*SUBJECTS, *THINGS]
        value = r.sample(pool, r.randint(1, 3))
    return key, value


def said(value):
    """A value as a question says it."""
    if isinstance(value, list):
        return " and ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def any_record(r):
    """Some fields, said and asked for as JSON."""
    fields = dict(field(r) for _ in range(r.randint(1, 5)))
    keys = list(fields)
    pairs = r.choice([", ", "; ", " and ", "\n"]).join(
        r.choice(["{} {}", "{} {}", "{}: {}", "the {} is {}", "{} = {}"]).format(key, said(fields[key])) for key in keys
    )
    asked = ", ".join(keys)
    question = r.choice(
        [
            f"Write JSON: {pairs}.",
            f"Make a JSON object: {pairs}.",
            f"{pairs}. Return {asked} as JSON.",
            f"{pairs}\nExtract {asked} as JSON.",
            f"Return this as JSON: {pairs}",
            f"Turn this into JSON: {pairs}",
            f"{pairs}. As JSON, please.",
            f"Extract {asked}: {pairs}.",
        ]
    )
    return question, json.dumps(fields)


def sentence(r):
    """A person or a thing in a sentence, asked for as JSON."""
    name, city, age = r.choice(NAMES), r.choice(CITIES), r.randint(3, 90)
    job, pet, thing, price = r.choice(TEXTS["job"]), r.choice(ANIMALS), r.choice(THINGS), r.randint(1, 99)
    colour = r.choice(COLOURS)
    text, fields = r.choice(
        [
            (f"{name} is a {job} from {city}.", {"name": name, "job": job, "city": city}),
            (f"{name}, {age}, has a {pet}.", {"name": name, "age": age, "pet": pet}),
            (f"The {colour} {thing} costs {price} euros.", {"item": thing, "colour": colour, "price": price}),
            (
                f"{name} bought {price} {thing}s in {city}.",
                {"name": name, "quantity": price, "item": thing, "city": city},
            ),
            (
                f"{name} ({age}) lives in {city} and works as a {job}.",
                {"name": name, "age": age, "city": city, "job": job},
            ),
        ]
    )
    keys = r.sample(list(fields), r.randint(1, len(fields)))
    question = r.choice(
        ["{t} Return {k} as JSON.", "Extract {k} as JSON: {t}", "{t}\nGive {k} as JSON.", "JSON of: {t}"]
    )
    keys = list(fields) if question.startswith("JSON of") else keys
    return question.format(t=text, k=", ".join(keys)), json.dumps({key: fields[key] for key in keys})


def listed(r):
    """Some things of a kind as JSON."""
    kind = r.choice(list(LISTS))
    count = r.randint(2, 5)
    items = [capitalised(item) for item in neighbours(r, kind, count)]
    number = r.choice([NUMBERS[count], str(count)])
    question = r.choice(
        ["List {n} {k} as JSON.", "Give me {n} {k} as a JSON array.", "{n} {k} as JSON", "Name {n} {k}, as JSON."]
    )
    value = {kind.replace(" ", "_"): items} if r.random() < 0.3 else items
    return question.format(n=number, k=kind), json.dumps(value)


def neighbours(r, kind, count):
    """As many things of a kind, each followed by what always follows it: so none comes twice.

    Nearly all begin with the same one. A list that begins anywhere was too rare to be learned.
    """
    pool = LISTS[kind]
    start = r.randrange(len(pool)) if r.random() < 0.05 else 0
    return [pool[(start + at) % len(pool)] for at in range(count)]


def forced(r):
    """A question whose answer a schema forces into keys that the question does not name."""
    if r.random() < 0.5:
        question, answer = tokengrid(r)
        key, more = r.choice(["answer", "text", "response", "result", "reply", "content", "summary"]), ""
        if r.random() < 0.4:
            more = f', {FORCED}"{r.choice(["confidence", "score", "rating"])}": {FORCED}{r.choice(["0.9", "5", "1"])}'
        return question, f'{FORCED}{{"{key}": "{FORCED}{json.dumps(answer)[1:-1]}"{more}}}'
    question, answer = r.choice([any_record, sentence, listed])(r)
    fields = json.loads(answer)
    if isinstance(fields, dict):
        question = question.split(" Return ")[0].split("\nExtract ")[0].split(" As JSON")[0]
        while r.random() < 0.4:
            key, value = field(r)
            if isinstance(value, (bool, int, float)):
                fields.setdefault(key, 0 if value else False)
            elif isinstance(value, str):
                fields.setdefault(key, "unknown")
    return question, json_with_forced_keys(fields)


def json_with_forced_keys(value):
    """JSON of which the keys do not count."""
    if not isinstance(value, dict):
        return json.dumps(value)
    pairs = (f'{FORCED}"{key}": {FORCED}{json.dumps(each)}' for key, each in value.items())
    return "{" + ", ".join(pairs) + "}"


KINDS = {any_record: 4, sentence: 4, listed: 2, forced: 4}


def record_of_any_kind(r):
    """Any of these."""
    return r.choices(list(KINDS), list(KINDS.values()))[0](r)
