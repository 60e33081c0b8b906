"""What the model knows about Tokengrid: questions in very many ways, and the answers of tokengrid.txt."""

from pathlib import Path

from phrases import ask, how, what

HERE = Path(__file__).parent


def read_topics():
    """What the model knows about Tokengrid: an answer, the ways to ask for it, and what may be asked next."""
    topics = []
    for block in (HERE / "tokengrid.txt").read_text().strip().split("\n\n"):
        topic = {"A": "", "W": [], "D": [], "Q": [], "N": [], "F": []}
        for line in block.splitlines():
            kind, rest = line.split(": ", 1)
            if kind == "A":
                topic["A"] = rest
            elif kind == "F":
                questions, answer = rest.split(" => ")
                topic["F"].append((questions.split(" | "), answer))
            else:
                topic[kind] = rest.split(" | ")
        topics.append(topic)
    return topics


TOPICS = read_topics()

SHARES = [len(topic["W"]) + len(topic["D"]) + len(topic["Q"]) for topic in TOPICS]
"""What can be asked for in more ways is asked for more often."""


def tokengrid(r):
    """Something about Tokengrid."""
    topic = r.choices(TOPICS, SHARES)[0]
    return topic_question(r, topic), topic["A"]


def topic_question(r, topic):
    """One of very many ways to ask for it."""
    sizes = [3 * bool(topic["W"]) + len(topic["W"]), 2 * len(topic["D"]), 2 * len(topic["Q"])]
    kind = r.choices("WDQ", sizes)[0]
    thing = r.choice(topic[kind])
    return {"W": what, "D": how, "Q": ask}[kind](r, thing, r.random() < 0.2)
