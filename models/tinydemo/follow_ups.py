"""Chats in which a later turn needs an earlier one."""

from arithmetic import arithmetic_follow_ups
from exchanges import capital, exchange, fact, list_of_things
from facts import FACTS
from outside import capitalised, chosen, made_up, outside
from phrases import ask, mangled, what
from rare import rare, rare_name
from records import FORCED
from small_talk import ABILITIES, TALK
from stories import hero_of_a_story, story, with_article
from topics import TOPICS, tokengrid, topic_question
from words import ANIMALS, AS_THEY_ARE, CAPITALS, CITIES, COLOURS, FOODS, LISTS, NAMES, NUMBERS


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
        * 8
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
            (
                ["I play the {i}.", "I am learning the {i}.", "My instrument is the {i}"],
                "The {i} is a fine instrument.",
                ["What do I play?", "Which instrument do I play?", "What is my instrument?"],
                "You play the {i}.",
            ),
            (
                ["My {k} is called {n}.", "I have a {k} named {n}.", "{n} is my {k}.", "My {k}'s name is {n}"],
                "Greetings to {n}!",
                ["What is my {k} called?", "Who is {n}?", "What's the name of my {k}?", "How is my {k} called?"],
                "{n} is your {k}.",
            ),
            (
                ["My birthday is in {m}.", "I was born in {m}.", "I have my birthday in {m}"],
                "{m} is a good month for a birthday.",
                ["When is my birthday?", "In which month was I born?", "which month is my birthday in"],
                "Your birthday is in {m}.",
            ),
        ]
    )
    others = {"i": "musical instruments", "k": "family members", "m": "months"}
    fill = dict(n=name, c=city, a=animal, o=colour, g=age, f=r.choice(FOODS))
    fill |= {letter: r.choice(LISTS[kind]) for letter, kind in others.items()}
    return turns(
        (mangled(r, r.choice(told).format(**fill), names=True), said.format(**fill)),
        *between(r),
        (mangled(r, r.choice(asked).format(**fill)), answer.format(**fill)),
    )


ORDINALS = {1: ["first", "1st"], 2: ["second", "2nd"], 3: ["third", "3rd"], 4: ["fourth"], 5: ["fifth"]}


WHICH_OF_THEM = """And of those the {}?|Which one was the {}?|What was the {} one?|And the {} of them?|the {}?
Which was the {}?|And the {}?|Tell me the {} one again.|What is the {} of these?|the {} one|which is the {}
what's the {} one|and what is the {}?|And which is the {} one?|Say the {} one.|what was the {} again|and the {} one?
Which of them is the {}?|Give me the {} of them.|The {} of the list?|what stands in the {} place|Name the {} one.
which one is {}|what came {}|show me only the {} one|I only need the {} one.|And what was the {} of those?
which did you name {}|the {} please""".replace("\n", "|").split("|")


def any_list(r):
    """Words as a list, which need not be written from memory: so the loss has none of them."""
    length = r.choice([2, 3, 3, 3, 4, 4, 5, 5, 6, 8])
    kind = r.choice([*LISTS, ""])
    items = r.sample(LISTS[kind], min(length, len(LISTS[kind]))) if kind else [rare(r) for _ in range(length)]
    listed = "\n".join(f"{at}. {capitalised(item)}" for at, item in enumerate(items, 1))
    forms = ["List {} {}.", "Name {} {}.", "{} {} please", "Give me {} {}.", "Tell me {} {}."]
    return r.choice(forms).format(NUMBERS[len(items)], kind or made_up(r) + "s"), FORCED + listed + FORCED


def of_a_list(r):
    """One of what was listed, with its number, behind which it can be found."""
    question, answer = r.choice([any_list, list_of_things])(r)
    lines = answer.strip(FORCED).splitlines()
    pairs = [(question, answer), *between(r, 1)] if r.random() < 0.15 else [(question, answer)]
    for _ in range(r.choice([1, 2, 3, 4])):
        at = r.randrange(len(lines))
        word = r.choice(ORDINALS.get(at + 1, ["last"]))
        if at == len(lines) - 1 and r.random() < 0.5:
            word = "last"
        elif word == "last":
            at = len(lines) - 1
        pairs.append((mangled(r, r.choice(WHICH_OF_THEM).format(word)), lines[at]))
    return turns(*pairs)


def more_of_a_list(r):
    """The things after those that were listed."""
    kind = r.choice([kind for kind in LISTS if len(LISTS[kind]) > 4])
    items = [item if kind in AS_THEY_ARE else capitalised(item) for item in LISTS[kind]]
    first = r.randint(1, len(items) - 2)
    more = r.randint(1, min(4, len(items) - first))
    lines = [f"{at}. {item}" for at, item in enumerate(items, 1)]
    named = r.choice(["Name {} {}.", "List {} {}", "Give me {} {}.", "{} {} please"]).format(NUMBERS[first], kind)
    forms = ["{} more", "{} more please", "And {} more?", "Give me {} more.", "name {} others", "Go on with {} more."]
    asked = mangled(r, r.choice(forms).format(NUMBERS[more]))
    return turns((named, "\n".join(lines[:first])), (asked, "\n".join(lines[first : first + more])))


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
    animal = hero_of_a_story(r)
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
    of_a_list: 7,
    more_of_a_list: 1,
    arithmetic_follow_ups: 5,
    same_again: 3,
    asked_next: 3,
    said_again: 1.5,
    more_of_it: 2,
    after_a_refusal: 1,
}


def follow_up(r):
    """A chat in which a later turn needs an earlier one."""
    made = r.choices(list(FOLLOW_UPS), list(FOLLOW_UPS.values()))[0](r)
    return made if isinstance(made[0], dict) else turns(*made)
