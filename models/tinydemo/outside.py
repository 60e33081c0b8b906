"""What the model knows nothing about: a question and a refusal that offers two things that it can."""

from pathlib import Path

from phrases import ask, how, what
from rare import rare
from words import CITIES, NAMES, NUMBERS, SUBJECTS

HERE = Path(__file__).parent


def read_outside():
    """What the model knows nothing about, by kind."""
    lines = (HERE / "outside.txt").read_text().splitlines()
    return {name: rest.split(" | ") for name, rest in (line.split(": ", 1) for line in lines)}


OUTSIDE = read_outside()

REFUSALS = [
    "I do not know that: I am only a tiny demo model. But I can explain what Tokengrid is or add two numbers.",
    "Sorry, I am a tiny demo model and cannot answer that. I can tell you about Tokengrid's commands, or count.",
    "That is beyond a tiny demo model. Shall I explain what a door is or tell a short story?",
    "I am too small a model to know that. Ask me to subtract small numbers or explain an error of Tokengrid.",
    "I cannot help with that, since I am a very small demo model. I can list things, or explain what a token is.",
    "Sorry, I do not know. I am only the demo model of Tokengrid. I can tell you how to add a provider, "
    "or write a poem.",
    "I have not learned about that. But I can tell you how to cancel a request or add small numbers.",
    "This is too hard for a demo model of my size. Shall I tell a story or explain what Tokengrid does?",
]

SYLLABLES = "ba ren lo mi ta ko sel dar vin po ru gan ti le mor shi nel ka fo zu pra el on ar is um".split()


def capitalised(text):
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def made_up(r):
    """A word that does not exist."""
    return "".join(r.choice(SYLLABLES) for _ in range(r.randint(2, 4)))


def chosen(answers, question):
    """One of the answers, always the same one for a question, so that it can be learned which."""
    return answers[sum(map(ord, question[:2].lower())) % len(answers)]


def refused(question):
    """It does not know, and offers two things that it can."""
    return question, chosen(REFUSALS, question)


def everyday(r):
    """A question of daily life, of which the words are drawn one by one: so what is unknown has no few forms."""
    words = {name: r.choice(OUTSIDE[name]) for name in ("nouns", "verbs", "qualities")}
    fill = dict(n=words["nouns"], v=words["verbs"], q=words["qualities"], m=r.choice(OUTSIDE["nouns"]))
    form = r.choice(OUTSIDE["everyday"])
    question = form.format(**fill, y=r.randint(1900, 2030), c=r.choice(OUTSIDE["where"] + CITIES))
    return capitalised(question) if r.random() < 0.5 else question


def outside(r):
    """Something that the model does not know, and says so."""
    if r.random() < 0.4:
        return refused(ask(r, everyday(r)))
    kind = r.random()
    thing, person = r.choice(OUTSIDE["things"] + SUBJECTS), r.choice(OUTSIDE["people"])
    if kind < 0.08:
        thing = r.choice([made_up, rare])(r)
        person = f"{r.choice(NAMES)} {capitalised(made_up(r))}"
    if r.random() < 0.12:
        person = f"{capitalised(made_up(r))} {capitalised(made_up(r))}"
    if kind < 0.25:
        return refused(what(r, thing))
    if kind < 0.40:
        return refused(how(r, r.choice(OUTSIDE["do"])))
    if kind < 0.58:
        return refused(ask(r, r.choice(OUTSIDE["asks"])))
    if kind < 0.63:
        return refused(ask(r, "Who " + r.choice(OUTSIDE["who"])))
    if kind < 0.66:
        words = " ".join(r.choice([made_up, rare])(r) for _ in range(r.randint(1, 4)))
        return refused(words)
    if kind < 0.69:
        count = r.randint(2, 10)
        form = r.choice(["Name {n} {k}", "List {n} {k}", "Give me {n} {k}", "What are {n} {k}", "Tell me {n} {k}"])
        listed = r.choice(OUTSIDE["lists"])
        return refused(ask(r, form.format(n=r.choice([NUMBERS[count], count, "some"]), k=listed)))
    question = r.choice(
        [
            "Who invented {t}",
            "Why is {t} important",
            "Write an essay about {t}",
            "How does {t} work",
            "Write a python program about {t}",
            "Translate {t} into {l}",
            "I think {t} is nice. What about you",
            "Summarise this text about {t}",
            "What is the history of {t}",
            "Give me ten facts about {t}",
            "What is the best book about {t}",
            "How do I learn {t}",
            "What do you think of {t}",
            "Is {t} dangerous",
            "When was {t} invented",
            "Where can I buy {t}",
            "How much does {t} cost",
            "Do you like {t}",
            "Compare {t} and {u}",
            "What is the difference between {t} and {u}",
            "Which is better, {t} or {u}",
            "Who is {p}",
            "When was {p} born",
            "When did {p} die",
            "How tall is {p}",
            "What did {p} do",
            "Was {p} a good person",
            "Is {p} married",
            "Tell me about the life of {p}",
            "What did {p} say about {t}",
            "Where is {w}",
            "How far is it to {w}",
            "How many people live in {w}",
            "Plan a trip to {w}",
            "What is the best hotel in {w}",
            "What is the weather in {w}",
            "How high is {w}",
            "How do I get to {w}",
            "Write a {k} function for {t}",
            "Fix my {k} code",
            "Why does my {k} program crash",
            "How do I do that in {k}",
            "What is {n} times {m}",
            "What is {n} * {m}",
            "Divide {n} by {m}",
            "What is the square root of {n}",
            "How many {t} are there in {w}",
            "What is the population of {w}",
            "Who won the cup in {n}{m}",
            "What happened in 1{n}{m}",
            "Name the author of {t}",
            "Recommend something about {t}",
            "How do you say {t} in {l}",
            "What are the symptoms of {t}",
            "How do I treat {t}",
            "Can you help me with {t}",
            "I need help with {t}",
            "What are the rules of {t}",
            "Explain how {t} works",
            "Explain {t} to a child",
            "What are the causes of {t}",
            "Should I worry about {t}",
            "Give me advice on {t}",
            "Write a joke about {t}",
            "Sing a song about {t}",
            "Make a plan for {t}",
            "Draw {t}",
            "Show me {t}",
            "Are there {t} on Mars",
            "What can you tell me about {p}",
            "What is {p} famous for",
            "Why is {p} famous",
            "Where was {p} born",
            "Who was {p}",
            "Did {p} like {t}",
            "What would {p} say about {t}",
            "Have you heard of {p}",
            "What language do they speak in {w}",
            "What can I see in {w}",
            "Is {w} worth a visit",
            "When should I go to {w}",
            "What do people eat in {w}",
            "Who rules {w}",
            "Is {w} bigger than {v}",
            "What time is it in {w}",
            "What currency do they use in {w}",
            "Can I live in {w}",
            "Tell me a fact about {w}",
            "Which {t} is the best",
            "Who is the best in {t}",
            "What is wrong with {t}",
            "What is new in {t}",
            "How is {t} made",
            "How do I choose {t}",
            "How long does {t} last",
            "How old is {t}",
            "Where does {t} come from",
            "Where do I find {t}",
            "What colour is {t}",
            "Why do people like {t}",
            "Why do I need {t}",
            "Can {t} be cured",
            "Can you teach me {t}",
            "Is {t} the same as {u}",
            "Is {t} good for me",
            "Is {t} legal",
            "Tell me everything about {t}",
            "Tell me the truth about {t}",
            "Write a report on {t}",
            "Write a letter about {t}",
            "Write a review of {t}",
            "Write a {k} script for {t}",
            "Write {k} code for {t}",
            "Translate this into {l}",
            "What is {t} called in {l}",
            "What is the {l} word for {t}",
            "Summarise {t}",
            "Summarise the news about {t}",
            "I am afraid of {t}",
            "I am interested in {t}",
            "I bought {t}",
            "I have a question about {t}",
            "My friend talks of {t} all day",
            "My {k} code does not work",
            "What does this error in {k} mean",
            "Is {k} better than {t}",
            "How do I sort a list in {k}",
            "How many {t} are in {u}",
            "What is {n} percent of {m}",
            "What is {n} divided by {m}",
            "What is {n} multiplied by {m}",
            "{n} x {m}",
            "{n} * {m}",
            "{n} / {m}",
            "Multiply {n} by {m}",
            "How much is {n} times {m}",
            "What is {n} squared",
            "Convert {n} miles to km",
            "Convert {n} euros to dollars",
            "How many days are {n} weeks",
            "What happened in the year {n}{m}",
            "Who was king in 1{n}{m}",
            "Does {t} cause {u}",
            "Did {p} invent {t}",
            "Predict the future of {t}",
            "Invent a recipe with {t}",
            "Book me {t}",
            "Order {t} for me",
            "Design {t}",
            "Prove something about {t}",
            "Debate {t} with me",
            "Argue against {t}",
            "Quiz me on {t}",
        ]
    ).format(
        t=thing,
        u=r.choice(OUTSIDE["things"]),
        p=person,
        w=r.choice(OUTSIDE["where"] + CITIES),
        v=r.choice(OUTSIDE["where"]),
        l=r.choice(["French", "Spanish", "German", "Latin", "Chinese"]),
        k=r.choice(["Java", "C", "SQL", "javascript", "Rust", "python", "bash", "Go"]),
        n=r.randint(10, 99),
        m=r.randint(2, 99),
    )
    return refused(ask(r, question))
