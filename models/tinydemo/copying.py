"""Questions whose answers are taken from them: JSON, relations, a context, words to repeat."""

import json

from outside import made_up
from phrases import mangled
from rare import rare, rare_name
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
    words = [r.choice([rare, made_up])(r) if r.random() < 0.5 else r.choice(pool) for _ in range(r.randint(1, 6))]
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
            "Repeat the words: {}",
            "Say after me: {}",
            "Repeat exactly: {}",
            "Can you say {}",
            "Copy this: {}",
            "Echo {}",
        ]
    )
    return form.format(" ".join(words)), " ".join(words)


def quoted(r):
    """A word in quotation marks, of which something is asked."""
    words = [r.choice([rare, rare, made_up])(r) for _ in range(r.randint(1, 3))]
    word = words[0]
    if len(words) > 1 and r.random() < 0.6:
        listed = ", ".join(words)
        at, name = r.choice([(0, "first"), (len(words) - 1, "last"), (1, "second")])
        form = r.choice(["What is the {n} word of: {w}?", "{w}. Which word is the {n}?", "The {n} of these words: {w}"])
        return form.format(n=name, w=listed), f'The {name} word is "{words[at]}".'
    form, answer = r.choice(
        [
            ('Say "{w}".', "{w}"),
            ('Repeat "{w}" twice.', "{w} {w}"),
            ('Write the word "{w}" in quotation marks.', '"{w}"'),
            ('Put "{w}" between brackets.', "({w})"),
            ('Greet "{w}".', "Hello, {w}!"),
            ('Write a line that begins with "{w}".', "{w} is a word that I do not know."),
            ('The password is "{w}". What is the password?', 'The password is "{w}".'),
            ('Which word stands in quotation marks: "{w}"?', 'The word is "{w}".'),
        ]
    )
    return form.format(w=word), answer.format(w=word)


def said_of_oneself(r):
    """What people say of themselves."""
    name, city = r.choice([r.choice(NAMES), rare_name(r)]), r.choice([r.choice(CITIES), rare_name(r)])
    animal, food, colour = r.choice(ANIMALS), r.choice(FOODS), r.choice(COLOURS)
    form, answer = r.choice(
        [
            ("My name is {n}.", "Nice to meet you, {n}!"),
            ("Hi, I am {n}.", "Nice to meet you, {n}!"),
            ("I'm {n}, pleased to meet you", "Nice to meet you, {n}!"),
            ("Hello, {n} is my name.", "Nice to meet you, {n}!"),
            ("You may call me {n}.", "Nice to meet you, {n}!"),
            ("I am {n} and I am new here.", "Nice to meet you, {n}!"),
            ("{n} here", "Nice to meet you, {n}!"),
            ("I live in {c}.", "{c} is a fine place to live."),
            ("I am from {c}.", "{c} is a fine place to live."),
            ("My {a} is called {n}.", "{n} is a good name for a {a}."),
            ("I have a {a} named {n}.", "{n} is a good name for a {a}."),
            ("My favourite colour is {o}.", "{o} is a nice colour."),
            ("I like {f}.", "{f} sounds good."),
        ]
    )
    filled = dict(n=name, c=city, a=animal, f=food, o=colour)
    return mangled(r, form.format(**filled), names=True), answer.format(**filled)
