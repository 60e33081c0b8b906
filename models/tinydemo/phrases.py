"""A thing, a deed or a question -> one of very many ways to ask for it, as people write them."""

WHAT = """What is {}?|What is {}?|what is {}|What's {}?|whats {}|Explain {}.|Tell me about {}.|Can you explain {}?
Please explain {} in simple words.|Describe {}.|Do you know what {} is?|Define {}.|What does {} mean?|What is {} for?
What does {} do?|{}?|what does {} do|I do not understand {}.|Tell me what {} is.|What do you know about {}?|{}
Could you tell me what {} is?|I want to know what {} is.|What exactly is {}?|Give me a short explanation of {}.
When do I use {}?|Say something about {}.|How would you describe {}?|What are you able to say about {}?|So what is {}?
What can I do with {}?|explain {} to me|I have never heard of {}, what is it?|Why would I need {}?|info on {}
How does {} work?|What is the purpose of {}?|what is {} good for|Help me understand {}.""".replace("\n", "|").split("|")

HOW = """How do I {}?|How do I {}?|How can I {}?|how to {}|How do you {}?|I want to {}.|I'd like to {}|Can I {}?
What do I have to do to {}?|Is there a way to {}?|What is the best way to {}?|What must I type to {}?|how can i {}
Please tell me how to {}.|Show me how to {}.|Which command do I use to {}?|Could you tell me how to {}?|How would I {}?
I need to {}.|What is needed to {}?|How does one {}?|Tell me how I can {}.|Is it possible to {}?|What should I do to {}?
I am trying to {}, how?|Explain how to {}.|What's the way to {}?|Help me {}.|Where do I {}?|what do i need to {}
My colleague wants to {}.|Can you show me how to {}?|How should I {}?|which command lets me {}|{}, how?
Do you know how to {}?|What are the steps to {}?|How is it possible to {}?""".replace("\n", "|").split("|")

BEFORE = [
    "Please: ",
    "Hey, ",
    "hi, ",
    "Quick question: ",
    "One question: ",
    "Sorry, ",
    "So ",
    "And ",
    "Hello! ",
    "ok, ",
    "Another question: ",
    "I wonder: ",
    "Tell me: ",
    "Please tell me, ",
]
AFTER = [
    " please",
    ", please",
    " thanks",
    " Thank you.",
    " exactly",
    " then",
    " again",
    " by the way",
    " in short",
    " now",
]
WITHIN = [" in Tokengrid", " with Tokengrid", " here", " with it", " in this program", " with tg", " for Tokengrid"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def what(r, thing, within=False):
    """A question for what a thing is."""
    return dressed(r, r.choice(WHAT).format(thing), within)


def how(r, deed, within=False):
    """A question for how something is done."""
    return dressed(r, r.choice(HOW).format(deed), within)


def ask(r, question, within=False, *, short=False):
    """A question in its own words."""
    sign = "?" if question.split()[0].lower() in QUESTION_WORDS else r.choice([".", "", "!"])
    return mangled(r, question + sign) if short else dressed(r, question + sign, within)


QUESTION_WORDS = set(
    "what which who how why where when is are do does can could will would should must has was did whats may".split()
)


SMALL_WORDS = set(
    "what which who how do does did is are the a an i you me my can could would should to of it in for there".split()
    + "this that be will please tell must have has about".split()
)


def terse(r, question):
    """In key words, or with a word missing."""
    words = question.split()
    if r.random() < 0.4:
        gone = r.randrange(len(words))
        return " ".join(words[:gone] + words[gone + 1 :]) if len(words) > 3 else question
    kept = [word for word in words if word.lower().strip(",.") not in SMALL_WORDS]
    return " ".join(kept) if len(kept) > 1 else question


def dressed(r, question, within=False):
    """With politeness, or where it is about."""
    end = question[-1] if question[-1] in "?.!" else ""
    core = question.removesuffix(end)
    if r.random() < 0.12:
        core = terse(r, core)
    if within:
        core += r.choice(WITHIN)
    if r.random() < 0.12:
        core = r.choice(BEFORE) + (core[0].lower() + core[1:] if r.random() < 0.7 else core)
    if r.random() < 0.1:
        return mangled(r, core + r.choice(AFTER) + (end if r.random() < 0.5 else ""))
    return mangled(r, core + end)


def mangled(r, text, *, names=False):
    """As people type: without signs or capitals, or with a letter wrong."""
    if r.random() < 0.25:
        text = text.rstrip("?.!")
    if r.random() < 0.2 and not names:
        text = text[0].lower() + text[1:] if r.random() < 0.5 else text.lower()
    if r.random() < 0.06 and not any(sign.isdigit() for sign in text):
        at = r.randrange(len(text))
        text = r.choice(
            [
                text[:at] + text[at + 1 :],
                text[:at] + r.choice(LETTERS) + text[at:],
                text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :],
            ]
        )
    if r.random() < 0.02:
        text = text.upper()
    return text or "?"
