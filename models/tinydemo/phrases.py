"""A thing, a deed or a question -> one of very many ways to ask for it, as people write them."""

WHAT = """What is {}?|What is {}?|what is {}|What's {}?|whats {}|Explain {}.|Tell me about {}.|Can you explain {}?
Please explain {} in simple words.|Describe {}.|Do you know what {} is?|Define {}.|What does {} mean?|What is {} for?
What does {} do?|{}?|what does {} do|I do not understand {}.|Tell me what {} is.|What do you know about {}?|{}
Could you tell me what {} is?|I want to know what {} is.|What exactly is {}?|Give me a short explanation of {}.
When do I use {}?|Say something about {}.|How would you describe {}?|What are you able to say about {}?|So what is {}?
What can I do with {}?|explain {} to me|I have never heard of {}, what is it?|Why would I need {}?|info on {}
How does {} work?|What is the purpose of {}?|what is {} good for|Help me understand {}.|Explain {} like I am five.
Explain {} to someone who never saw it.|{} explained|What is the point of {}?|the meaning of {}
What's the deal with {}?|What role does {} play?|What role has {}?|Somebody told me about {}. What is it?
Give me the gist of {}.|Introduce me to {}.|Who uses {}?|I would like to understand {}.|I keep reading about {}.
a few words on {}|Where do I use {}?|Sum up {} for me.|Why is there {}?|What is {} in simple terms?|{} - what is that?
hmm, {}?|I am new to {}.|Is {} a good thing?|teach me {}|What would I use {} for?|{} in one sentence
I saw {} somewhere. What is it?|What is meant by {}?|meaning of {}""".replace("\n", "|").split("|")

HOW = """How do I {}?|How do I {}?|How can I {}?|how to {}|How do you {}?|I want to {}.|I'd like to {}|Can I {}?
What do I have to do to {}?|Is there a way to {}?|What is the best way to {}?|What must I type to {}?|how can i {}
Please tell me how to {}.|Show me how to {}.|Which command do I use to {}?|Could you tell me how to {}?
How would I {}?|I need to {}.|What is needed to {}?|How does one {}?|Tell me how I can {}.|Is it possible to {}?
What should I do to {}?|I am trying to {}, how?|Explain how to {}.|What's the way to {}?|Help me {}.|Where do I {}?
what do i need to {}|My colleague wants to {}.|Can you show me how to {}?|How should I {}?|which command lets me {}
{}, how?|Do you know how to {}?|What are the steps to {}?|How is it possible to {}?|What is the easiest way to {}?
any way to {}|What's the quick way to {}?|How on earth do I {}?|How does somebody {}?|how could I {}
What do I run to {}?|I have to {}. How?|I would like to {}, what do I do?|What do I type if I want to {}?
Where can I {}?|what is the command to {}|Let me {}.|Which tool do I use to {}?|can somebody tell me how to {}
Could I {}?|I can't figure out how to {}.|my boss wants me to {}|What is the trick to {}?|teach me to {}|steps to {}
guide to {}|How can we {}?|how do people {}|What do I use to {}?|Does it let me {}?|What would I do to {}?
Are we able to {}?|Tell me the way to {}.|we want to {}|how best to {}|I was asked to {}.|How do developers {}?
How might one {}?|Give me a hint how to {}.|Will it let me {}?""".replace("\n", "|").split("|")

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
    "Just curious: ",
    "Ok so ",
    "Hmm, ",
    "Well, ",
    "Hey there, ",
    "Good morning, ",
    "Excuse me, ",
    "By the way, ",
    "I am new here. ",
    "Thanks. ",
    "Now ",
    "but ",
    "Wait, ",
    "Dumb question: ",
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
    " actually",
    " anyway",
    " really",
    ", do you know",
    ", I wonder",
    " on my laptop",
    " at work",
    " today",
    " for me",
    ", in a few words",
    ", thanks",
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


def alternatives():
    """Word -> others that a person may write for it."""
    others = {}
    for group in (group.split() for group in SAME.split("|")):
        for word in group:
            others.setdefault(word, []).extend(each for each in group if each != word)
    return others


SAME = """stop abort halt interrupt end cancel|answer reply response output|answers replies responses
see view display check|show list display|start launch run boot|starts launches runs|get obtain fetch|use try employ
command tool program|terminal shell console|install set-up|configuration config settings setup|add create make
connect link attach hook-up|fast quick quickly|error failure problem|errors failures problems|happens occurs
crashes dies fails breaks|big large|crash failure|needed required necessary|need require want
supported possible available allowed|running active live|client app program|model LLM|models LLMs
question query prompt|message text|tell show give|explain describe|way method|many several|find locate|write print
path route endpoint|address URL location|works runs|work run|kind sort type|kinds sorts types|purpose goal point
server machine host|software application|company firm|users people|user person|change edit set|exactly precisely
directly straight|leave exit quit|conversation chat dialog|longer bigger|begin start|shut switch turn|list enumerate
protect secure lock|test check try|free gratis|source code|licence license|stream streaming|simple easy
small little tiny|document page|file document""".replace("\n", "|")
ALTERNATIVES = alternatives()


def reworded(r, question):
    """Some words said otherwise."""
    words = question.split()
    for at, word in enumerate(words):
        if word in ALTERNATIVES and r.random() < 0.4:
            words[at] = r.choice(ALTERNATIVES[word]).replace("-", " ")
    return " ".join(words)


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
    if r.random() < 0.3:
        core = reworded(r, core)
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
