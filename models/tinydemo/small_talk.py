"""Greetings, thanks, and what the model says of itself."""

from pathlib import Path

from outside import chosen
from phrases import ask


def read_talk():
    """How often each subject comes up, and its questions and answers."""
    shares, subjects = [], []
    for line in (Path(__file__).parent / "small_talk.txt").read_text().splitlines():
        share, rest = line.split(": ", 1)
        questions, answers = rest.split(" => ")
        shares.append(int(share))
        subjects.append((questions.split(" | "), answers.split(" | ")))
    return shares, subjects


SHARES, TALK = read_talk()
ABILITIES = next(answers for questions, answers in TALK if "What can you do" in questions)


def talk(r):
    """Greetings, thanks, and what the model says of itself."""
    questions, answers = r.choices(TALK, SHARES)[0]
    question = ask(r, r.choice(questions), short=True)
    return question, chosen(answers, question)
