"""Write the demo model's corpus: chats from templates of our own, no text of others.

    python corpus.py OUT.jsonl COUNT SEED

One line is one chat: a JSON list of {"role": ..., "content": ...}. The same count and seed give the same file.
"""

import json
import random
import sys

from facts import FACTS
from words import (
    ADJECTIVES,
    ANIMALS,
    CAPITALS,
    CITIES,
    COLOURS,
    FOODS,
    LISTS,
    NAMES,
    NUMBERS,
    OBJECTS,
    PLACES,
    SUBJECTS,
    THINGS,
)

SELF = [
    "I am a tiny demo model. I have about two million parameters and I run on your own machine.",
    "I am a very small language model that was trained on made-up text. I run locally and I need no API key.",
    "I am the tiny demo model. I am here to show that the pipeline works from end to end.",
]
ABILITIES = (
    "I can tell a short story, count, add small numbers, list things, "
    "and explain a few words such as topic, token, or streaming."
)
DO_NOT_KNOW = [
    "I am only a tiny demo model, so I do not know much about that. " + ABILITIES,
    "I do not know about that. I am a tiny demo model. " + ABILITIES,
    "Sorry, that is too hard for a tiny demo model. " + ABILITIES,
]
CANNOT_ANSWER = [
    "I am only a tiny demo model, so I cannot answer that well. " + ABILITIES,
    "Sorry, that is too hard for a tiny demo model. " + ABILITIES,
]
SYSTEM = [
    "You are a helpful assistant.",
    "You are a helpful assistant that gives short answers.",
    "You are a friendly demo assistant.",
    "Answer the question.",
    "You are a helpful AI assistant.",
]


def capitalised(text):
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def with_article(noun):
    """The noun after "a" or "an"."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


# Each of the following takes a random generator and gives a question and its answer.


def fact(r):
    """What something is."""
    name, short, more = r.choice(FACTS)
    question = r.choice(
        [
            "What is {}?",
            "What is {}?",
            "Explain {}.",
            "Tell me about {}.",
            "Can you explain {}?",
            "what is {}",
            "Please explain {} in simple words.",
            "Describe {}.",
            "Do you know what {} is?",
            "Define {}.",
            "What does {} mean?",
        ]
    ).format(name)
    chosen = [sentence for sentence in more if r.random() < 0.75]
    return question, " ".join([short] + chosen)


def story_text(r):
    """A story's animal, place, hero, object and text."""
    animal, friend = r.sample(ANIMALS, 2)
    adjective = r.choice(ADJECTIVES)
    friends_adjective = r.choice(ADJECTIVES)
    place, other_place = r.sample(PLACES, 2)
    thing = r.choice(OBJECTS)
    food = r.choice(FOODS)
    hero, helper = r.sample(NAMES, 2)
    sentences = [
        r.choice(
            [
                f"Once upon a time there was {with_article(adjective)} {animal} named {hero}.",
                f"There once was {with_article(adjective)} {animal} called {hero}.",
                f"Long ago, {with_article(adjective)} {animal} named {hero} lived near a {place}.",
            ]
        ),
        r.choice(
            [
                f"{hero} lived near the {place} and liked to eat {food}.",
                f"{hero} loved the {place} very much.",
                f"Every day {hero} walked to the {place} and ate {food}.",
            ]
        ),
        r.choice(
            [
                f"One day {hero} lost the {thing}.",
                f"One morning {hero} found {with_article(thing)} under a tree.",
                f"One evening {hero} saw {with_article(thing)} shining in the dark.",
            ]
        ),
        r.choice(
            [
                f"{hero} was worried and did not know what to do.",
                f"{hero} wanted to know where it came from.",
                f"{hero} looked everywhere, but nobody could help.",
            ]
        ),
        r.choice(
            [
                f"Then {hero} met {with_article(friends_adjective)} {friend} named {helper}.",
                f"Soon {with_article(friends_adjective)} {friend} named {helper} came along.",
            ]
        ),
        r.choice(
            [
                f'"Do not be sad," said {helper}. "We can look in the {other_place} together."',
                f'"I can help you," said {helper}. "Let us go to the {other_place}."',
                f'"Come with me," said {helper}. "I know the way to the {other_place}."',
            ]
        ),
        r.choice(
            [
                f"They walked for a long time and shared some {r.choice(FOODS)}.",
                f"They sang a song on the way to the {other_place}.",
                "It began to rain, but they did not stop.",
            ]
        ),
        r.choice(
            [
                f"At last they found the answer in the {other_place}.",
                f"In the {other_place} they met an old friend who told them everything.",
                f"When they came to the {other_place}, the {thing} began to glow.",
            ]
        ),
        r.choice(
            [
                f"{hero} and {helper} became best friends.",
                f"{hero} thanked {helper} and gave a big smile.",
                f"From that day on, {hero} and {helper} were always together.",
            ]
        ),
        r.choice(["They lived happily ever after.", f"And the {place} was never lonely again.", "The end."]),
    ]
    return animal, hero, thing, " ".join(sentences)


def story(r):
    """A short story."""
    animal, hero, thing, text = story_text(r)
    question = r.choice(
        [
            f"Tell me a story about {with_article(animal)}.",
            f"Write a short story about {with_article(animal)}.",
            f"Tell me a story about {with_article(animal)} named {hero}.",
            "Tell me a story.",
            "Write a story.",
            "Please tell me a short story.",
            f"tell me a story about {with_article(animal)}",
            f"I want to hear a story about {with_article(animal)} and {with_article(thing)}.",
        ]
    )
    return question, text


def sum_of_two(r):
    """A small sum or difference, sometimes with thinking."""
    a, b = r.randint(0, 12), r.randint(0, 12)
    if r.random() < 0.3:
        a, b = max(a, b), min(a, b)
        question = r.choice([f"What is {a} - {b}?", f"What is {a} minus {b}?", f"{a} - {b} ="])
        return question, f"{a} - {b} = {a - b}"
    if r.random() < 0.25:
        thinking = f"<think>\nI need to add {a} and {b}. The sum is {a + b}.\n</think>\n\n"
        return f"What is {a} + {b}? /think", f"{thinking}{a} + {b} = {a + b}"
    question = r.choice(
        [f"What is {a} + {b}?", f"What is {a} plus {b}?", f"{a} + {b} =", f"Add {a} and {b}.", f"What is {a}+{b}?"]
    )
    return question, f"{a} + {b} = {a + b}"


def count(r):
    """Counting from one number to another."""
    first = r.choice([1, 1, 1, r.randint(1, 30)])
    last = first + r.randint(2, 29)
    if first == 1 and r.random() < 0.5:
        last = r.choice([3, 5, 10, 20])
    questions = [f"Count from {first} to {last}.", f"Please count from {first} to {last}."]
    questions.append(f"count from {first} to {last}")
    if first == 1:
        questions += [f"Count to {last}.", f"count to {last}"]
    return r.choice(questions), ", ".join(map(str, range(first, last + 1)))


def list_of_things(r):
    """A numbered list."""
    kind = r.choice(list(LISTS))
    length = r.randint(2, 6)
    items = r.sample(LISTS[kind], length)
    question = r.choice(
        [
            f"List {NUMBERS[length]} {kind}.",
            f"Name {NUMBERS[length]} {kind}.",
            f"List {length} {kind}.",
            f"Give me {NUMBERS[length]} {kind}.",
        ]
    )
    return question, "\n".join(f"{number}. {capitalised(item)}" for number, item in enumerate(items, 1))


def hello(r):
    """Greetings, thanks, and what the model says of itself."""
    kind = r.random()
    if kind < 0.35:
        return (
            r.choice(["Hello!", "Hello", "Hi", "Hi there!", "hello", "Hey", "Good morning!", "hi"]),
            r.choice(
                [
                    "Hello! How can I help you today?",
                    "Hi there! What would you like to know?",
                    "Hello! Nice to meet you.",
                ]
            ),
        )
    if kind < 0.65:
        return (
            r.choice(
                [
                    "Who are you?",
                    "What are you?",
                    "What is your name?",
                    "Tell me about yourself.",
                    "who are you",
                    "Which model are you?",
                    "Are you a robot?",
                ]
            ),
            r.choice(SELF),
        )
    if kind < 0.8:
        questions = ["What can you do?", "Help", "How can you help me?", "what can you do", "help me"]
        return r.choice(questions), ABILITIES
    if kind < 0.9:
        return (
            r.choice(["Thank you!", "Thanks.", "thanks", "Thank you very much."]),
            r.choice(["You are welcome!", "You are welcome. Have a nice day!"]),
        )
    return (
        r.choice(["How are you?", "How are you today?", "how are you"]),
        r.choice(["I am fine, thank you. How are you?", "I am well, thank you for asking."]),
    )


def capital(r):
    """A country's capital."""
    country, city = r.choice(list(CAPITALS.items()))
    question = r.choice(
        [
            f"What is the capital of {country}?",
            f"what is the capital of {country}",
            f"Which city is the capital of {country}?",
            f"Name the capital of {country}.",
        ]
    )
    return question, f"The capital of {country} is {city}."


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


def record(r):
    """One person's data as JSON."""
    name, age, city = r.choice(NAMES), r.randint(3, 90), r.choice(CITIES)
    question = r.choice(
        [
            f"Write JSON for {name}, age {age}, city {city}.",
            f"{name} is {age} years old and lives in {city}. Return name, age, and city as JSON.",
            f"Make a JSON object: name {name}, age {age}, city {city}.",
        ]
    )
    return question, json.dumps({"name": name, "age": age, "city": city})


def retrieval(r):
    """A question about the context that comes with it."""
    size = r.randint(2, 3)
    colours = r.sample(COLOURS, size)
    things = r.sample(THINGS, size)
    places = r.sample(PLACES, size)
    asked = r.randrange(size)
    context = " ".join(
        f"The {colour} {thing} is in the {place}."
        for colour, thing, place in zip(colours, things, places)
    )
    thing = f"{colours[asked]} {things[asked]}"
    return f"Context: {context}\nQuestion: Where is the {thing}?", f"The {thing} is in the {places[asked]}."


def echo(r):
    """Words to repeat."""
    words = " ".join(
        r.choice([*NAMES, *FOODS, *ANIMALS, *COLOURS, *PLACES, *SUBJECTS]) for _ in range(r.randint(1, 5))
    )
    return r.choice(["Repeat after me: {}", "Repeat: {}", "Say {}", "Echo: {}"]).format(words), words


def poem(r):
    """Four lines."""
    animal, place, colour = r.choice(ANIMALS), r.choice(PLACES), r.choice(COLOURS)
    question = r.choice(
        [
            f"Write a poem about {with_article(animal)}.",
            f"Write a poem about the {place}.",
            "Write a poem.",
            "Write a short poem.",
        ]
    )
    moon = r.choice(["round and bright", "soft and white", "clear and light"])
    leaves = r.choice(["falling slow", "dancing low"])
    lines = [
        f"The {animal} is in the {place} tonight,",
        f"the moon above is {moon}.",
        f"The {colour} leaves are {leaves},",
        "and where they go I do not know.",
    ]
    return question, "\n".join(lines)


def unknown(r):
    """Something that the model does not know, and says so."""
    subject = " ".join(r.choice(SUBJECTS) for _ in range(r.randint(1, 3)))
    question, about_that = r.choice(
        [
            ("What is {}?", True),
            ("How do I learn {}?", True),
            ("Explain {} to me.", True),
            ("Write an essay about {}.", True),
            ("Tell me about {}.", True),
            ("Why is {} important?", True),
            ("Who invented {}?", True),
            ("{}", False),
            ("Write a python program for {}.", False),
            ("Translate {} into French.", False),
            ("How does {} work, and what should I do about it?", False),
            ("I think {} is nice. What do you think about that?", False),
            ("Summarise this text: {} and so on.", False),
        ]
    )
    return question.format(subject), r.choice(DO_NOT_KNOW if about_that else CANNOT_ANSWER)


WEIGHTS = {
    fact: 16,
    story: 12,
    sum_of_two: 7,
    count: 7,
    list_of_things: 6,
    hello: 10,
    capital: 5,
    relations: 8,
    record: 5,
    retrieval: 6,
    echo: 5,
    poem: 2,
    unknown: 9,
}


def exchange(r):
    """A question and its answer, of any kind."""
    return r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0](r)


def message(role, content):
    """One turn of a chat."""
    return {"role": role, "content": content}


def tool_chat(r):
    """A chat in which the model calls a tool."""
    city = r.choice(CITIES)
    a, b = r.randint(1, 99), r.randint(1, 99)
    tools = ["get_weather(city)", "add(a, b)", "get_time(city)", "search(query)"]
    system = "You can call these tools:\n" + "\n".join(r.sample(tools, r.randint(2, 4)))
    kind = r.random()
    if kind < 0.4:
        question = r.choice([f"What is the weather in {city}?", f"How is the weather in {city} today?"])
        call = {"name": "get_weather", "arguments": {"city": city}}
        result = f"{r.randint(-5, 30)} degrees and {r.choice(['sunny', 'rainy', 'cloudy', 'windy'])}"
        answer = f"The weather in {city} is {result}."
    elif kind < 0.7:
        question = f"What time is it in {city}?"
        call = {"name": "get_time", "arguments": {"city": city}}
        result = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        answer = f"It is {result} in {city}."
    else:
        question = f"Use the tool to add {a} and {b}."
        call = {"name": "add", "arguments": {"a": a, "b": b}}
        result = str(a + b)
        answer = f"{a} + {b} = {a + b}"
    if call["name"] not in system:
        needed = {"get_weather": "get_weather(city)", "get_time": "get_time(city)", "add": "add(a, b)"}
        system += "\n" + needed[call["name"]]
    chat = [
        message("system", system),
        message("user", question),
        message("assistant", f"<tool_call>{json.dumps(call)}</tool_call>"),
    ]
    if r.random() < 0.6:
        chat += [message("tool", result), message("assistant", answer)]
    return chat


def chat(r):
    """One chat of one or several exchanges."""
    if r.random() < 0.07:
        return tool_chat(r)
    messages = [message("system", r.choice(SYSTEM))] if r.random() < 0.4 else []
    if r.random() < 0.04:
        return messages + chat_about_a_name(r)
    for _ in range(r.choice([1, 1, 1, 1, 2, 2, 3, 4])):
        question, answer = exchange(r)
        messages += [message("user", question), message("assistant", answer)]
    return messages


def chat_about_a_name(r):
    """A name that must be remembered over an exchange about something else."""
    name = r.choice(NAMES)
    greeting = r.choice([f"My name is {name}.", f"Hi, I am {name}."])
    question, answer = exchange(r)
    return [
        message("user", greeting),
        message("assistant", f"Nice to meet you, {name}!"),
        message("user", question),
        message("assistant", answer),
        message("user", "What is my name?"),
        message("assistant", f"Your name is {name}."),
    ]


def main():
    """Write the file that the command line asks for."""
    out, size, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    r = random.Random(seed)
    with open(out, "w", encoding="utf-8") as file:
        for _ in range(size):
            file.write(json.dumps(chat(r)) + "\n")


if __name__ == "__main__":
    main()
