"""A short story or a poem: a question and its answer."""

from outside import OUTSIDE
from phrases import mangled
from words import ADJECTIVES, ANIMALS, COLOURS, FOODS, NAMES, OBJECTS, PLACES

NOUNS = OUTSIDE["nouns"]


def with_article(noun):
    """The noun after "a" or "an"."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def story_text(r, animal):
    """A story's hero, object and text."""
    friend = r.choice([each for each in ANIMALS if each != animal])
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
    return hero, thing, " ".join(sentences)


def hero_of_a_story(r):
    """Whom a story is about: nearly anything can be."""
    return r.choice([*ANIMALS, "wolf", "lion", "bird", "fish", "mouse", "king", "girl", "boy"] + 10 * [r.choice(NOUNS)])


def story(r, animal=None):
    """A short story, about an animal."""
    animal = animal or hero_of_a_story(r)
    hero, thing, text = story_text(r, animal)
    question = r.choice(
        [
            f"Tell me a story about {with_article(animal)}.",
            f"Write a short story about {with_article(animal)}.",
            f"Tell me a story about {with_article(animal)} named {hero}.",
            f"I'd like a story with {with_article(animal)}.",
            f"Can you tell me a short story about {with_article(animal)}?",
            f"Make up a story with {with_article(animal)}.",
            f"A story about {with_article(animal)}, please.",
            "Tell me a story.",
            "Write a story.",
            "Please tell me a short story.",
            "Tell me a short story.",
            "Do you know a story?",
            "I want to hear a story.",
            f"tell me a story about {with_article(animal)}",
            f"I want to hear a story about {with_article(animal)} and {with_article(thing)}.",
        ]
    )
    return mangled(r, question), text


def poem(r):
    """Four lines."""
    animal, colour = r.choice(ANIMALS), r.choice(COLOURS)
    place = r.choice([*PLACES, "sea", "moon", "rain", "sun"] + 10 * [r.choice(NOUNS)])
    question = r.choice(
        [
            f"Write a poem about {with_article(animal)}.",
            f"Write a poem about the {place}.",
            "Write a poem.",
            "Write a short poem.",
            f"Make me a poem about the {place}.",
            f"A poem about {with_article(animal)}, please.",
            "Can you write a poem?",
            "a poem please",
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
    return mangled(r, question), "\n".join(lines)
