"""Questions whose answers are taken from them: JSON, relations, a context, words to repeat."""

import json

from outside import made_up
from words import ADJECTIVES, ANIMALS, CITIES, COLOURS, FOODS, NAMES, PLACES, SUBJECTS, THINGS


def record(r):
    """One person's data as JSON."""
    name, age, city = r.choice(NAMES), r.randint(3, 90), r.choice(CITIES)
    question = r.choice(
        [
            f"Write JSON for {name}, age {age}, city {city}.",
            f"{name} is {age} years old and lives in {city}. Return name, age, and city as JSON.",
            f"{name} is {age} and lives in {city}. Return name, age, and city as JSON.",
            f"{name} lives in {city} and is {age} years old. Return name, age, and city as JSON.",
            f"Make a JSON object: name {name}, age {age}, city {city}.",
        ]
    )
    return question, json.dumps({"name": name, "age": age, "city": city})


def relations(r):
    """Relations in a text, as JSON."""
    sentences, triples = [], []
    for _ in range(r.randint(1, 3)):
        name = r.choice(NAMES)
        predicate, thing = r.choice(
            [
                ("likes", r.choice(FOODS)),
                ("lives in", r.choice(CITIES)),
                ("knows", r.choice(NAMES)),
                ("works with", r.choice(NAMES)),
                ("has a", r.choice(ANIMALS)),
                ("visited", r.choice(CITIES)),
            ]
        )
        sentences.append(f"{name} {predicate} {thing}.")
        triples.append({"subject": name, "predicate": predicate, "object": thing})
    task = r.choice(
        [
            "Extract the relationships as JSON: ",
            "Extract the facts as JSON: ",
            "List the relationships in this text as JSON.\n",
        ]
    )
    return task + " ".join(sentences), json.dumps(triples)


def retrieval(r):
    """A question about the context that comes with it."""
    size = r.randint(2, 3)
    colours, things, places = r.sample(COLOURS, size), r.sample(THINGS, size), r.sample(PLACES, size)
    asked = r.randrange(size)
    context = " ".join(f"The {c} {t} is in the {p}." for c, t, p in zip(colours, things, places))
    thing = f"{colours[asked]} {things[asked]}"
    return f"Context: {context}\nQuestion: Where is the {thing}?", f"The {thing} is in the {places[asked]}."


def echo(r):
    """Words to repeat."""
    pool = [*NAMES, *FOODS, *ANIMALS, *COLOURS, *PLACES, *SUBJECTS, *ADJECTIVES]
    words = [made_up(r) if r.random() < 0.2 else r.choice(pool) for _ in range(r.randint(1, 6))]
    form = r.choice(
        [
            "Repeat after me: {}",
            "Repeat: {}",
            "Say {}",
            "Echo: {}",
            "Please say: {}",
            "Repeat this: {}",
            "Please repeat after me: {}",
            "say {}",
            "Write {}",
        ]
    )
    return form.format(" ".join(words)), " ".join(words)
