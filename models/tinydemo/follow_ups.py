"""Chats in which a later turn needs an earlier one."""

from arithmetic import arithmetic_follow_ups
from exchanges import capital, exchange, fact, list_of_things
from facts import FACTS
from outside import capitalised, chosen, made_up, outside
from phrases import ask, mangled, what
from rare import rare_name
from small_talk import ABILITIES, TALK
from stories import story, with_article
from topics import TOPICS, tokengrid, topic_question
from words import ANIMALS, CAPITALS, CITIES, COLOURS, FOODS, NAMES


def message(role, content):
    """One turn of a chat."""
    return {"role": role, "content": content}


def turns(*pairs):
    """The messages of some exchanges."""
    return [message(role, text) for pair in pairs for role, text in zip(("user", "assistant"), pair)]


def between(r, most=2):
    """Exchanges about something else."""
    return [exchange(r) for _ in range(r.choice([0, 0, 1, most]))]


def remembered(r):
    """What the user says of himself, and asks for later."""
    name = r.choice(NAMES) if r.random() < 0.4 else r.choice([capitalised(made_up(r)), rare_name(r), rare_name(r)])
    city, animal, colour, age = r.choice(CITIES), r.choice(ANIMALS), r.choice(COLOURS), r.randint(8, 90)
    told, said, asked, answer = r.choice(
        [
            (
                [
                    "My name is {n}.",
                    "Hi, I am {n}.",
                    "I'm {n}",
                    "i am {n}",
                    "Call me {n}.",
                    "Hello, my name is {n}.",
                    "This is {n}.",
                    "My name is {n}, nice to meet you.",
                    "Hi, I'm {n}.",
                    "you can call me {n}",
                    "I am called {n}.",
                ],
                "Nice to meet you, {n}!",
                [
                    "What is my name?",
                    "Do you remember my name?",
                    "Who am I?",
                    "tell me my name",
                    "What's my name",
                    "say my name",
                    "What did I say my name was?",
                    "Do you know my name?",
                    "How am I called?",
                    "tell me who I am",
                ],
                "Your name is {n}.",
            )
        ]
        * 5
        + [
            (
                ["I live in {c}.", "I am from {c}.", "My home is in {c}.", "I live in {c} now", "I come from {c}"],
                "{c} is a fine place to live.",
                ["Where do I live?", "Which city do I live in?", "Where is my home?", "Where am I from?"],
                "You live in {c}.",
            ),
            (
                ["My favourite colour is {o}.", "I like the colour {o}.", "{o} is my favourite colour"],
                "{o} is a nice colour.",
                ["What is my favourite colour?", "Which colour do I like?", "What colour did I say?"],
                "Your favourite colour is {o}.",
            ),
            (
                ["My {a} is called {n}.", "I have a {a} named {n}.", "The name of my {a} is {n}."],
                "{n} is a good name for a {a}.",
                [
                    "What is my {a} called?",
                    "What is the name of my {a}?",
                    "How is my {a} called?",
                    "What's my {a}'s name?",
                ],
                "Your {a} is called {n}.",
            ),
            (
                ["I am {g} years old.", "My age is {g}.", "I'm {g} years old"],
                "{g} is a good age.",
                ["How old am I?", "What is my age?", "Do you know how old I am?", "What age am I?"],
                "You are {g} years old.",
            ),
            (
                ["I like {f}.", "My favourite food is {f}.", "I love {f}", "I like to eat {f}."],
                "{f} sounds good.",
                ["What do I like?", "What is my favourite food?", "What do I like to eat?", "Which food do I like?"],
                "You like {f}.",
            ),
        ]
    )
    fill = dict(n=name, c=city, a=animal, o=colour, g=age, f=r.choice(FOODS))
    return turns(
        (mangled(r, r.choice(told).format(**fill), names=True), said.format(**fill)),
        *between(r),
        (mangled(r, r.choice(asked).format(**fill)), answer.format(**fill)),
    )


ORDINALS = {1: ["first", "1st"], 2: ["second", "2nd"], 3: ["third", "3rd"], 4: ["fourth"], 5: ["fifth"]}


def of_a_list(r):
    """One of what was listed."""
    question, answer = list_of_things(r)
    items = [line.split(". ")[1] for line in answer.splitlines()]
    pairs = [(question, answer)]
    for _ in range(r.choice([1, 1, 2, 3])):
        at = r.randrange(len(items))
        word = r.choice(ORDINALS.get(at + 1, ["last"]))
        if at == len(items) - 1 and r.random() < 0.6:
            word = "last"
        pairs.append(
            (
                mangled(
                    r,
                    r.choice(
                        [
                            "And of those the {}?",
                            "Which one was the {}?",
                            "What was the {} one?",
                            "And the {} of them?",
                            "the {}?",
                            "Which was the {}?",
                            "And the {}?",
                            "Tell me the {} one again.",
                            "What is the {} of these?",
                            "the {} one",
                        ]
                    ).format(word),
                ),
                f"The {word} one is {items[at]}.",
            )
        )
    return turns(*pairs)


def same_again(r):
    """Another question of the same kind, of which only the new part is said."""
    kind = r.random()
    if kind < 0.3:
        (one, first), (other, second) = r.sample(list(CAPITALS.items()), 2)
        asked = r.choice(
            [f"And of {other}?", f"and {other}?", f"And {other}?", f"What about {other}?", f"and for {other}"]
        )
        return turns(
            (mangled(r, f"What is the capital of {one}?"), f"The capital of {one} is {first}."),
            (mangled(r, asked), f"The capital of {other} is {second}."),
        )
    named = [topic for topic in TOPICS if topic["N"]]
    if kind < 0.7:
        one, other = r.sample(named, 2)
        asked = r.choice(
            ["And {}?", "What about {}?", "and {}", "And what about {}?", "How about {}?", "and what is {}"]
        )
        return turns((topic_question(r, one), one["A"]), (mangled(r, asked.format(r.choice(other["N"]))), other["A"]))
    animal = r.choice(ANIMALS)
    hero, text = story(r, animal)
    asked = r.choice(["Another one, about {}.", "And now one about {}.", "One more, about {}", "Now a story about {}."])
    return turns(story(r), (mangled(r, asked.format(with_article(animal))), text))


def asked_next(r):
    """What is asked next about the same thing."""
    topic = r.choice([topic for topic in TOPICS if topic["F"]])
    pairs = [(topic_question(r, topic), topic["A"])]
    for questions, answer in r.sample(topic["F"], min(len(topic["F"]), r.randint(1, 2))):
        pairs.append((ask(r, r.choice(questions), short=True), answer))
    return turns(*pairs)


def said_again(r):
    """The same answer, or the question before."""
    question, answer = r.choice([tokengrid, fact, capital])(r)
    asked = r.choice(
        [
            "Say that again.",
            "Repeat that please",
            "What did you say?",
            "again",
            "Once more, please.",
            "Can you repeat that?",
            "Pardon?",
            "I did not get that.",
            "Please say it again",
        ]
    )
    return turns((question, answer), (mangled(r, asked), answer))


def more_of_it(r):
    """More about a fact."""
    name, short, more = r.choice([fact for fact in FACTS if fact[2]])
    asked = r.choice(
        [
            "Tell me more.",
            "More about it?",
            "go on",
            "Can you say more?",
            "And what else?",
            "more please",
            "Explain it further.",
            "What else do you know about it?",
        ]
    )
    return turns((what(r, name), " ".join([short, *more])), (mangled(r, asked), " ".join(more)))


def after_a_refusal(r):
    """What it can do, or why it does not know."""
    then = ["What can you do then", "What do you know then", "What can you do", "So what can I ask"]
    answers = ABILITIES
    if r.random() < 0.5:
        then, answers = TALK[-1]
    question = ask(r, r.choice(then), short=True)
    return turns(outside(r), (question, chosen(answers, question)))


FOLLOW_UPS = {
    remembered: 5,
    of_a_list: 3,
    arithmetic_follow_ups: 5,
    same_again: 3,
    asked_next: 3,
    said_again: 1,
    more_of_it: 1,
    after_a_refusal: 1,
}


def follow_up(r):
    """A chat in which a later turn needs an earlier one."""
    made = r.choices(list(FOLLOW_UPS), list(FOLLOW_UPS.values()))[0](r)
    return made if isinstance(made[0], dict) else turns(*made)
