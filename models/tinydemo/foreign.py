"""Long system prompts of other programs, made up: rules, sections, tags, tools as JSON, code, and plain noise."""

import json

from outside import OUTSIDE, made_up
from words import ADJECTIVES, ANIMALS, CITIES, COLOURS, FOODS, NAMES, OBJECTS, PLACES, SUBJECTS, THINGS

VERBS = """
use read write answer check follow explain keep avoid return call prefer open close edit create delete run test search
list include ignore repeat describe format translate summarise cite mention quote ask confirm split merge replace move
send save load plan review fix build wrap escape validate show hide limit count compare group sort filter match parse
generate remember forget refuse accept apply choose start stop wait report log respond think consider never
""".split()

NOUNS = """
file folder path line code function class user message answer question tool request response result error rule step task
list table heading section paragraph sentence word language style tone format context history conversation session
document source link citation note title tag summary example template schema field value key type name number date time
place command terminal shell browser page button image table column row branch commit change patch test bug project
repository package module import variable argument option flag setting preference memory profile account order customer
product price policy team member agent assistant model system prompt instruction reply request plan goal query database
service server client event log file-name token limit length output input block fence bracket quote workspace editor
""".split()

QUALITIES = """
short long clear exact relative absolute full empty last first new old current previous next only main other same
relevant useful polite careful complete correct safe private public internal external friendly helpful honest
professional concise detailed unknown missing broken valid invalid optional required default
""".split()

LINKS = "in of for with without before after inside about from to between under as against through within on by".split()

OPENINGS = (
    """
You are {n}, {q} {o} of {m}.|You are an expert in {o} and {o}.|Your name is {m}. You help {o}s with {o}s.
You are a {q} {o} that {v}s {o}s.|Act as a {q} {o} for {m}.|You are {m}, made by {n}.|{m} is a {q} {o} for {o}s.
### Task:|# System|<role>{o}</role>|As a {o}, you {v} every {o}.|This is {m} {d}.{d}, a {o} for {o}s.
You are an AI {o} in a {o}. The {o} is {n}.|Today is the {d} of {m}. The user lives in {c}.
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

FRAMES = (
    """
Always {v} the {q} {o}.|Never {v} a {o} {l} the {o}.|Do not {v} {o}s {l} {o}s.|You must {v} the {o} {l} the {q} {o}.
If the {o} is {q}, {v} the {o}.|When the user {v}s a {o}, {v} it {l} the {o}.|{V} the {o} {l} the {o}, and {v} it.
The {o} is {q}.|Each {o} has a {o} and a {q} {o}.|Only {v} the {o} if it is {q}.|Be {q} and {q}.|Your {o} must be {q}.
You can {v} {o}s, {v} {o}s and {v} the {o}.|Before you {v}, {v} the {q} {o}.|Think step by step about the {o}.
Use at most {d} {o}s.|Make sure that the {o} {l} the {o} is {q}.|You have access to the {o} and the {o}.
The {q} {o} of {n} is {q}.|Remember: {v} {o}s, not {o}s.|IMPORTANT: {v} the {o} {l} the {o}!|It is {q} to {v} {o}s.
What is the {o}? It is the {q} {o}.|Users ask about {t}, {t} or {t}.|Do not talk about {t}.|The {o} can be {t}.
For {t}, {v} the {o} {l} {c}.|If you do not know the {o}, say so.|Answer in {d} {o}s or fewer.|Respond only in JSON.
Reply in the language of the {o}.|Do not make up {o}s.|Use Markdown: **{o}**, `{o}` and {o}s.|See the {o} {l} {p}.
Ask the user {l} the {o}.|Your {o} ends in {d}.|There are {d} {o}s: {o}, {o}, {o} and {o}.|{n} said: "{V} the {o}."
Should the {o} {v} the {o}? Yes, if it is {q}.|The {a} has a {k} {h}.|{V}ing {o}s is {q}; {v} them {l} {o}s.
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


def filled(r, frame):
    """The frame with words in its places."""
    out = []
    for at, part in enumerate(frame.split("{")):
        if at == 0:
            out.append(part)
            continue
        kind, rest = part.split("}", 1)
        out.append(WORDS[kind](r) + rest)
    return "".join(out)


THINGS_KNOWN = [*OUTSIDE["things"], *SUBJECTS, *FOODS, *THINGS]

WORDS = {
    "v": lambda r: r.choice(VERBS),
    "V": lambda r: r.choice(VERBS).capitalize(),
    "o": lambda r: r.choice(NOUNS) if r.random() < 0.93 else made_up(r),
    "q": lambda r: r.choice(QUALITIES),
    "l": lambda r: r.choice(LINKS),
    "t": lambda r: r.choice(THINGS_KNOWN),
    "n": lambda r: r.choice(NAMES),
    "m": lambda r: made_up(r).capitalize(),
    "d": lambda r: str(r.randint(1, r.choice([9, 99, 2030, 99999]))),
    "c": lambda r: r.choice(CITIES),
    "p": lambda r: path(r),
    "a": lambda r: r.choice(ANIMALS + OBJECTS),
    "k": lambda r: r.choice(COLOURS + ADJECTIVES),
    "h": lambda r: r.choice(PLACES),
}


def path(r):
    """A path or an address."""
    parts = [r.choice(NOUNS) for _ in range(r.randint(1, 4))]
    end = r.choice([".py", ".ts", ".md", ".json", "/", "", ".txt"])
    return r.choice(["/", "./", "https://", "C:/", "src/"]) + "/".join(parts) + end


def sentences(r, most=5):
    """Some sentences."""
    return " ".join(filled(r, r.choice(FRAMES)) for _ in range(r.randint(1, most)))


def heading(r):
    """A heading in one of the usual forms."""
    words = " ".join(r.choice(NOUNS) for _ in range(r.randint(1, 3)))
    return r.choice(["# {}", "## {}", "### {}", "{}:", "**{}**", "=== {} ===", "[{}]", "----\n{}"]).format(
        r.choice([words.title(), words, words.upper()])
    )


def section(r):
    """A heading with sentences or points."""
    sign = r.choice(["- ", "* ", "{}. ", "  - ", "• "])
    points = [sign.format(at) + sentences(r, 2) for at in range(1, r.randint(2, 8))]
    return heading(r) + "\n" + (sentences(r) if r.random() < 0.4 else "\n".join(points))


def tagged(r):
    """Something in tags."""
    tag = "_".join(r.choice(NOUNS) for _ in range(r.randint(1, 2)))
    inner = r.choice([sentences, pairs, dialog])(r)
    return f"<{tag}>\n{inner}\n</{tag}>"


def pairs(r):
    """Settings, one a line."""
    sign = r.choice([": ", " = ", "=", ": - "])
    return "\n".join(
        r.choice(NOUNS)
        + sign
        + r.choice([path, made_up, lambda r: filled(r, "{q} {o}"), lambda r: filled(r, "{d}")])(r)
        for _ in range(r.randint(2, 7))
    )


ASKED = ["What is {t}?", "How do I {v} the {o}?", "{V} the {o}.", "Who is {n}?", "Hello!"]


def dialog(r):
    """Others who talk, as an example or a history."""
    names = [("User", "Assistant"), ("user", "assistant"), ("USER", "ASSISTANT"), ("Q", "A"), ("Human", "AI")]
    one, other = r.choice(names)
    return "\n".join(
        f"{one}: {filled(r, r.choice(ASKED))}\n{other}: {filled(r, r.choice(FRAMES))}" for _ in range(r.randint(1, 4))
    )


def tools(r):
    """Tools, as JSON or in words."""
    made = []
    for _ in range(r.randint(1, 4)):
        name = r.choice(VERBS) + "_" + r.choice(NOUNS)
        keys = {r.choice(NOUNS): {"type": r.choice(["string", "integer", "boolean"])} for _ in range(r.randint(1, 3))}
        made.append(
            {"name": name, "description": sentences(r, 1), "parameters": {"type": "object", "properties": keys}}
        )
    if r.random() < 0.5:
        return json.dumps(made, indent=r.choice([None, 2]))
    return "\n".join(
        f"## {t['name']}\n{t['description']}\n<{t['name']}>\n<path>{path(r)}</path>\n</{t['name']}>" for t in made
    )


def code(r):
    """Code in a fence."""
    a, b, c = (r.choice(NOUNS) for _ in range(3))
    lines = r.choice(
        [
            [f"def {a}({b}):", f"    return {b}.{c}({r.randint(0, 99)})"],
            [f"const {a} = {{ {b}: '{c}' }};", f"{a}.{b}({r.randint(0, 99)});"],
            [f'{{"{a}": "{b}", "{c}": [{r.randint(0, 9)}, {r.randint(0, 9)}]}}'],
            [f"$ {a} --{b} {c}", f"{a}: {b} {c} not found"],
            [f"SELECT {a} FROM {b} WHERE {c} = {r.randint(0, 99)};"],
            [f"| {a} | {b} |", "|---|---|", f"| {c} | {r.randint(0, 99)} |"],
        ]
    )
    return (
        "```"
        + r.choice(["", "python", "json", "js", "xml", "sh"])
        + "\n"
        + "\n".join(lines * r.randint(1, 2))
        + "\n```"
    )


def noise(r):
    """Words that do not exist, or signs."""
    if r.random() < 0.6:
        return " ".join(made_up(r) for _ in range(r.randint(5, 40)))
    signs = [
        chr(r.randint(33, 126)) if r.random() < 0.9 else chr(r.randint(160, 1200)) for _ in range(r.randint(10, 80))
    ]
    return "".join(sign if r.random() < 0.8 else " " for sign in signs)


def steady(r):
    """One sentence many times."""
    return (filled(r, r.choice(FRAMES)) + " ") * r.randint(2, 12)


PARTS = {sentences: 6, section: 8, tagged: 3, pairs: 1, dialog: 2, tools: 2, code: 2, noise: 1, steady: 0.5}


def long_system(r, characters):
    """A system prompt of about as many characters."""
    parts = [r.choice(OPENINGS) if r.random() < 0.3 else filled(r, r.choice(OPENINGS))]
    # A prompt often has few kinds of parts.
    kinds = r.choices(list(PARTS), list(PARTS.values()), k=r.randint(1, 6))
    while sum(map(len, parts)) < characters:
        parts.append(r.choice(kinds)(r))
    return r.choice(["\n", "\n\n", "\n\n", " "]).join(parts)
