"""Sums, differences and counting: a question and its answer, with tens and ones worked out apart where both matter."""

from phrases import mangled
from words import ANIMALS, COLOURS, FOODS, NAMES, NUMBERS, THINGS

PLUS = """What is {a} + {b}?|What is {a} plus {b}?|{a} + {b} =|Add {a} and {b}.|What is {a}+{b}?|{a}+{b}|{a} + {b}
How much is {a} plus {b}?|what's {a} plus {b}|Calculate {a} + {b}.|What is the sum of {a} and {b}?|{a} plus {b}?
Please add {a} and {b} for me.|Can you add {a} and {b}?|Compute {a} + {b}|How much is {a} + {b}?|{a} + {b} = ?
What do {a} and {b} make?|What do you get if you add {b} to {a}?|Tell me what {a} plus {b} is.|{a} and {b} together?
Work out {a} + {b}.|What does {a} + {b} equal?|Sum {a} and {b}|What is {b} more than {a}?|the sum of {a} and {b}
Can you compute {a} + {b}|I need {a} plus {b}.|Add {b} to {a}.|what is {a} and {b}|{a} plus {b} equals
I have {a} apples and buy {b} more. How many do I have now?|{n} has {a} coins and finds {b}. How many are there?
There are {a} birds and {b} more come. How many birds are there?|If I have {a} and get {b} more, how many are there?
{n} is {a} years old. How old is {n} in {b} years?|What number do I get from {a} and {b} together?
{n} reads {a} pages today and {b} tomorrow. How many pages is that?|{a} added to {b}|How many are {a} and {b}?
Sum of {a} and {b}?|What is the total of {a} and {b}?|There were {a} people, then {b} came. How many are there?
{a} and {b} make what?|I walk {a} km and then {b} km. How far is that?|plus: {a} and {b}|{a} increased by {b}
{n} has {a} books and gets {b} more. How many books has {n}?|In a box are {a} pens. I put in {b}. How many are in it?
What will I have if I add {b} to {a}?|Could you add {a} and {b} for me?|{a} + {b} equals what?|What's {a} + {b}
what is {a} + {b}|I want to know {a} + {b}.|Do you know what {a} + {b} is?|{a} +{b}|({a} + {b})
A shelf holds {a} books, another one {b}. How many books are there?|{n} pays {a} euros and then {b}. How much is that?
One bus has {a} seats, the other one {b}. How many seats are there?|{a} boys and {b} girls are here. How many children?
{n} ran {a} minutes yesterday and {b} today. How many minutes?|{a} red and {b} blue balls: how many balls?
It was {a} degrees and became {b} warmer. How warm is it?|On Monday I sold {a} cakes, on Tuesday {b}. How many cakes?
{n} picks {a} pears, and a friend {b}. How many do they have together?|Find the sum of {a} and {b}.|{a} & {b} summed
Raise {a} by {b}.|Increase {a} by {b}.|Put {a} and {b} together.|Which number is {b} greater than {a}?|{b} on top of {a}
There are {a} cups here and {b} there. How many cups in all?|A coat costs {a} and a hat {b}. What do both cost?
Evaluate {a} + {b}|Solve {a} + {b}|answer {a} + {b}|How many is {a} plus {b}?|{a} plus {b} please|{a}+{b}=?""".replace(
    "\n", "|"
).split("|")

MINUS = """What is {a} - {b}?|What is {a} minus {b}?|{a} - {b} =|{a} - {b}|{a}-{b}|Subtract {b} from {a}.|{a} minus {b}?
How much is {a} minus {b}?|what's {a} minus {b}|Calculate {a} - {b}.|What is the difference of {a} and {b}?
What is the difference between {a} and {b}?|Take {b} away from {a}.|Can you subtract {b} from {a}?|{a} - {b} = ?
Compute {a} - {b}|How much is {a} - {b}?|What remains if I take {b} from {a}?|Tell me what {a} minus {b} is.
Work out {a} - {b}.|What is {b} less than {a}?|{a} take away {b}|can you compute {a} - {b}|What does {a} - {b} equal?
I have {a} apples and eat {b}. How many are left?|If I have {a} euros and spend {b}, what is left?
{n} has {a} coins and loses {b}. How many remain?|There are {a} birds and {b} fly away. How many are left?
From {a} take {b}|What is left of {a} without {b}?|Please subtract {b} from {a}.|{a} without {b}|{a} less {b}
{n} had {a} sweets and gave away {b}. How many has {n} now?|There were {a} cars and {b} drove off. How many remain?
A book has {a} pages. I read {b}. How many are left?|Reduce {a} by {b}.|What is {a} reduced by {b}?|{a} decreased by {b}
How many more is {a} than {b}?|By how much is {a} larger than {b}?|How far is it from {b} to {a}?|what is {a} - {b}
What do I get if I take {b} from {a}?|Of {a} eggs {b} break. How many are whole?|{a} - {b} equals what?|What's {a} - {b}
How much is left if I spend {b} of {a}?|Do you know what {a} - {b} is?|I want to know {a} - {b}.|{a} -{b}
minus: {a}, {b}|{n} is {a} and a sister is {b} years younger. How old is she?|Lower {a} by {b}.|Deduct {b} from {a}.
A rope of {a} metres loses {b}. How long is it now?|{a} people were in the train and {b} got off. How many stayed?
{n} has {a} euros and pays {b}. How much is left?|Of {a} pages {b} are read. How many remain?|Find {a} minus {b}.
The shop had {a} lamps and sold {b}. How many lamps are left?|Evaluate {a} - {b}|Solve {a} - {b}|{a} minus {b} please
I need {a} and have {b}. How many are missing?|How many more do I need from {b} to {a}?|Which number is {b} less than {a}?
{n} baked {a} rolls, and {b} were eaten. How many are left?|It was {a} degrees and became {b} colder. How warm is it?
Start with {a} and take {b} off.|What remains of {a} after {b} are gone?|Find the difference of {a} and {b}.|{a}-{b}=?
There were {a} eggs, and {b} are gone. How many are still there?|How much less is {b} than {a}?""".replace("\n", "|").split("|")

COUNT = "Count to {b}.|Count up to {b}.|count to {b}|Please count to {b}.|Can you count to {b}?|Count to {b} please."
COUNT += "|Say the numbers up to {b}.|Numbers up to {b}|List the numbers to {b}.|Write the numbers from 1 to {b}."
COUNT += "|Count from one to {b}.|Give me the numbers from 1 to {b}.|Show me how you count to {b}.|Begin at 1 and count to {b}"
COUNT_FROM = """
Count from {a} to {b}.|count from {a} to {b} please|Count up from {a} to {b}.
Start at {a} and count to {b}.|Can you count from {a} to {b}?|Numbers from {a} to {b}
List the numbers from {a} to {b}.|Write the numbers {a} to {b}.
Count on from {a} to {b}.|Say the numbers from {a} to {b}.|Which numbers are from {a} to {b}?|{a} to {b}, please count
Show all numbers from {a} up to {b}.|Begin with {a} and end with {b}: count.|Go from {a} to {b}.|Count {a} to {b}"""
COUNT_DOWN = """Count down from {b} to {a}.|Count backwards from {b} to {a}.|count down from {b} to {a}
Can you count backwards from {b} to {a}?|Start at {b} and count down to {a}.
Numbers from {b} down to {a}|Say the numbers from {b} back to {a}.|Go down from {b} to {a}.|Begin at {b} and go back to {a}."""
COUNT_DOWN_TO_1 = "Count down from {b}.|Count backwards from {b}.|countdown from {b}|Can you count down from {b}?"


def worked_sum(a, b):
    """The sum, by way of tens and ones."""
    ones, tens = a % 10 + b % 10, a - a % 10 + b - b % 10
    if tens == 0 or ones == 0 or {a, b} == {tens, ones}:
        return f"{a} + {b} = {a + b}"
    return f"{a} + {b} = {tens} + {ones} = {a + b}"


def worked_difference(a, b):
    """The difference, by way of taking the tens first."""
    if a < b:
        return f"{a} - {b} = -{b - a}" if b < 10 else f"{worked_difference(b, a)}, so {a} - {b} = -{b - a}"
    if a < 10 or b % 10 == 0:
        return f"{a} - {b} = {a - b}"
    if b < 10:
        return f"{a} - {b} = {a - b}"
    return f"{a} - {b} = {a - (b - b % 10)} - {b % 10} = {a - b}"


def two_numbers(r):
    """Small ones often, all up to 100."""
    most = r.choice([10, 20, 100, 100, 100, 100])
    other = 100 if r.random() < 0.06 else r.randint(0, most)
    return other, r.randint(0, r.choice([most, most, most, 9]))


def addition(r):
    """A sum."""
    a, b = two_numbers(r)
    if r.random() < 0.02:
        thinking = f"<think>\nI need to add {a} and {b}. The sum is {a + b}.\n</think>\n\n"
        return f"What is {a} + {b}? /think", thinking + worked_sum(a, b)
    return mangled(r, r.choice(PLUS).format(a=a, b=b, n=r.choice(NAMES))), worked_sum(a, b)


def subtraction(r):
    """A difference."""
    a, b = two_numbers(r)
    if r.random() < 0.94:
        a, b = max(a, b), min(a, b)
    return mangled(r, r.choice(MINUS).format(a=a, b=b, n=r.choice(NAMES))), worked_difference(a, b)


def in_words(r):
    """A small sum in words."""
    a, b = r.randint(0, len(NUMBERS) - 1), r.randint(0, 10)
    one, other = NUMBERS[a], NUMBERS[b]
    if r.random() < 0.6:
        form = r.choice(
            ["What is {} plus {}?", "{} plus {}?", "How much is {} plus {}?", "Add {} and {}.", "{} and {} make?"]
            + ["{} plus {}", "{} plus {} please", "{} plus {} is what", "{} and {} together", "how many are {} and {}"]
            + ["What is the sum of {} and {}?", "I have {} apples and buy {}. How many?", "What do {} and {} make?"]
        )
        return mangled(r, form.format(one, other)), worked_sum(a, b)
    a, b = max(a, b), min(a, b)
    form = r.choice(["What is {} minus {}?", "{} minus {}?", "How much is {} minus {}?", "{} take away {}"]
        + ["I have {} pens and lose {}. How many are left?", "What is {} less {}?", "{} minus {}", "{} less {}"])
    return mangled(r, form.format(NUMBERS[a], NUMBERS[b])), worked_difference(a, b)


def numbers(first, last):
    """From one number to another, up or down."""
    step = 1 if last >= first else -1
    return ", ".join(map(str, range(first, last + step, step)))


def counting(r):
    """Numbers in their order."""
    a = r.randint(1, r.choice([10, 90]))
    b = a + r.randint(1, r.choice([6, 12]))
    kind = r.random()
    if kind < 0.4:
        b = r.randint(1, r.choice([10, 20, 30]))
        return mangled(r, r.choice(COUNT.split("|")).format(b=b)), numbers(1, b)
    if kind < 0.7:
        return mangled(r, r.choice(COUNT_FROM.strip().replace("\n", "|").split("|")).format(a=a, b=b)), numbers(a, b)
    if kind < 0.85:
        return mangled(r, r.choice(COUNT_DOWN.replace("\n", "|").split("|")).format(a=a, b=b)), numbers(b, a)
    if kind < 0.9:
        return by_steps(r)
    b = r.randint(2, 15)
    return mangled(r, r.choice(COUNT_DOWN_TO_1.split("|")).format(b=b)), numbers(b, 1)


def by_steps(r):
    """Every second, fifth or tenth number."""
    step, name = r.choice([(2, "twos"), (5, "fives"), (10, "tens")])
    last = step * r.randint(3, 10)
    form = r.choice(
        ["Count by {n} to {b}.", "Count in {n} up to {b}.", "Count to {b} by {n}.", "Count in steps of {s} to {b}."]
    )
    return mangled(r, form.format(n=name, b=last, s=step)), ", ".join(map(str, range(step, last + 1, step)))


def neighbours(r):
    """The number before or after, and the larger of two."""
    a, b = r.sample(range(101), 2)
    kind = r.random()
    if kind < 0.27:
        form = r.choice(
            [
                "What number comes after {}?",
                "Which number follows {}?",
                "What comes after {}?",
                "What is next after {}?",
                "What is the number after {}?",
                "Which number is one more than {}?",
                "What is one more than {}?",
                "Tell me the next number after {}.",
                "the number following {}",
                "Which number comes right after {}?",
            ]
        )
        return mangled(r, form.format(a)), f"After {a} comes {a + 1}."
    if kind < 0.54:
        form = r.choice([
                "What number comes before {}?",
                "Which number is before {}?",
                "What comes before {}?",
                "What is the number before {}?",
                "What is one less than {}?",
                "Which number precedes {}?",
                "Which number is one less than {}?",
                "the number just before {}",
            ]
        )
        return mangled(r, form.format(a + 1)), f"Before {a + 1} comes {a}."
    if kind < 0.75:
        form = r.choice(
            [
                "Which is larger, {} or {}?",
                "Is {} or {} bigger?",
                "What is more, {} or {}?",
                "Which is greater: {} or {}?",
                "Which number is bigger, {} or {}?",
                "What is bigger, {} or {}?",
                "Which of {} and {} is larger?",
                "bigger: {} or {}?",
                "What is larger: {} or {}?",
                "Compare {} and {}.",
                "{} or {}, which is more?",
                "Which one is higher, {} or {}?",
                "The larger one of {} and {}?",
            ]
        )
        return mangled(r, form.format(a, b)), f"{max(a, b)} is larger than {min(a, b)}."
    if kind < 0.86:
        form = r.choice(
            [
                "Which is smaller, {} or {}?",
                "Is {} or {} smaller?",
                "What is less, {} or {}?",
                "Which is the smaller one: {} or {}?",
            ]
        )
        return mangled(r, form.format(a, b)), f"{min(a, b)} is smaller than {max(a, b)}."
    if kind < 0.94:
        form = r.choice(["Is {} smaller than {}?", "Is {} less than {}?", "Is {} lower than {}?", "{} < {}?"])
        return mangled(r, form.format(a, b)), f"{'Yes' if a < b else 'No'}, {min(a, b)} is smaller than {max(a, b)}."
    form = r.choice(["Is {} bigger than {}?", "Is {} larger than {}?", "Is {} more than {}?", "Is {} greater than {}?"])
    return mangled(r, form.format(a, b)), f"{'Yes' if a > b else 'No'}, {max(a, b)} is larger than {min(a, b)}."


def several_numbers(r):
    """The sum, the order, the largest or the smallest of three or four numbers."""
    some = r.sample(range(r.choice([10, 30, 100])), r.choice([3, 3, 4]))
    shown = ", ".join(map(str, some))
    kind = r.random()
    if kind < 0.3:
        a, b, c = (r.randint(0, r.choice([9, 30])) for _ in range(3))
        form = r.choice(["What is {} + {} + {}?", "{} + {} + {}", "Add {}, {} and {}.", "{} plus {} plus {}?"])
        return mangled(r, form.format(a, b, c)), f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}"
    if kind < 0.5:
        form = r.choice(["Which is the largest: {}?", "What is the biggest of {}?", "The largest of {}?", "max of {}"])
        return mangled(r, form.format(shown)), f"The largest is {max(some)}."
    if kind < 0.65:
        form = r.choice(["Which is the smallest: {}?", "What is the least of {}?", "The smallest of {}?", "min of {}"])
        return mangled(r, form.format(shown)), f"The smallest is {min(some)}."
    if kind < 0.85:
        form = r.choice(["Sort {}.", "Sort these numbers: {}", "Put {} in order.", "Order {} from small to large."])
        return mangled(r, form.format(shown)), ", ".join(map(str, sorted(some)))
    form = r.choice(["How many numbers are these: {}?", "How many numbers are in {}?", "Count these numbers: {}"])
    return mangled(r, form.format(shown)), f"These are {len(some)} numbers."


def doubled(r):
    """The double, the half, and whether a number is even."""
    a, kind = r.randint(1, r.choice([10, 50])), r.random()
    if kind < 0.4:
        form = r.choice(["What is double {}?", "Double {}.", "What is twice {}?", "How much is two times {}?", "{} twice"])
        return mangled(r, form.format(a)), worked_sum(a, a)
    if kind < 0.6:
        form = r.choice(["What is half of {}?", "Halve {}.", "The half of {}?", "How much is half of {}?"])
        return mangled(r, form.format(2 * a)), f"Half of {2 * a} is {a}."
    a = r.randint(0, 100)
    form = r.choice(["Is {} even or odd?", "Is {} an even number?", "Is {} odd?", "even or odd: {}", "Is {} even?"])
    word = "odd" if a % 2 else "even"
    if " or " in form:
        return mangled(r, form.format(a)), f"{a} is {word}."
    asked = "odd" if "odd" in form else "even"
    return mangled(r, form.format(a)), f"{'Yes' if word == asked else 'No'}, {a} is {word}."


def spelled(r):
    """The letters of a short word."""
    word = r.choice([each for each in [*ANIMALS, *COLOURS, *THINGS, *FOODS] if len(each) < 7])
    letters, kind = "-".join(word), r.random()
    if kind < 0.35:
        form = r.choice(["How do you spell {}?", "Spell {}.", "Spell the word {}.", "Can you spell {}?", "spell {}"])
        return mangled(r, form.format(word)), letters
    if kind < 0.75:
        form = r.choice(
            ["How many letters has {}?", "How many letters are in {}?", "Count the letters of {}.", "letters in {}"]
            + ["How many letters does the word {} have?", "How long is the word {}?"]
        )
        return mangled(r, form.format(word)), f"{letters}: {len(word)} letters."
    form, letter = r.choice([("first", word[0]), ("last", word[-1])])
    return mangled(r, f"What is the {form} letter of {word}?"), f"The {form} letter of {word} is {letter}."


def words_counted(r):
    """How many words or things are named."""
    count = r.randint(2, 6)
    named = r.sample([*ANIMALS, *COLOURS, *THINGS, *FOODS], count)
    form, unit = r.choice(
        [
            ("How many words are these: {}?", "words"),
            ("How many words are in: {}", "words"),
            ("Count the words: {}", "words"),
            ("How many things are these: {}?", "things"),
            ("How many do I name: {}?", "things"),
        ]
    )
    listed = (" " if unit == "words" else ", ").join(named)
    return form.format(listed), f"These are {count} {unit}."


KINDS = {
    addition: 8,
    subtraction: 9,
    in_words: 3,
    counting: 7,
    neighbours: 5,
    several_numbers: 1.5,
    doubled: 1.2,
    spelled: 1,
    words_counted: 0.6,
}


def ARITHMETIC(r):  # noqa: N802
    """Any of these."""
    return r.choices(list(KINDS), list(KINDS.values()))[0](r)


def arithmetic_follow_ups(r):
    """Questions of which each needs the result, or the form, of the one before."""
    if r.random() < 0.3:
        return counting_on(r)
    if r.random() < 0.25:
        pairs = [addition(r)]
        for _ in range(r.randint(1, 2)):
            a, b = two_numbers(r)
            form = r.choice(
                ["And {a} + {b}?", "and {a} plus {b}", "What about {a} + {b}?", "now {a} + {b}", "And {a}+{b}?"]
            )
            pairs.append((form.format(a=a, b=b), worked_sum(a, b)))
        return pairs
    question, answer = r.choice([addition, subtraction])(r)
    result, pairs = int(answer.split(" = ")[-1]), [(question, answer)]
    for _ in range(r.randint(1, 3)):
        if 0 < result < 60 and r.random() < 0.1:
            form = r.choice(["Double it.", "and double that", "Twice that?", "Now the double of it.", "that twice"])
            pairs.append((mangled(r, form), worked_sum(result, result)))
            result += result
        elif r.random() < 0.5 or result <= 0:
            more = r.randint(0, r.choice([9, 30]))
            form = r.choice(
                [
                    "And plus {}?",
                    "plus {}",
                    "Add {} to that.",
                    "and add {}",
                    "Now add {}.",
                    "and {} more?",
                    "add another {}",
                    "and what is {} more than that?",
                    "put {} on top",
                    "increase it by {}",
                    "with {} more that is?",
                ]
            )
            pairs.append((mangled(r, form.format(more)), worked_sum(result, more)))
            result += more
        else:
            less = r.randint(0, min(result, r.choice([9, 30])))
            form = r.choice(
                [
                    "And minus {}?",
                    "minus {}",
                    "Take {} away from that.",
                    "and subtract {}",
                    "Now take away {}.",
                    "and {} less?",
                    "now take away another {}",
                    "and what is {} less than that?",
                    "{} of them go away, what is left?",
                    "lower it by {}",
                    "without {} that is?",
                ]
            )
            pairs.append((mangled(r, form.format(less)), worked_difference(result, less)))
            result -= less
    return pairs


def counting_on(r):
    """Counting further, or back."""
    a = r.randint(1, r.choice([1, 1, 20]))
    b = a + r.randint(1, 9)
    first = f"Count to {b}." if a == 1 else f"Count from {a} to {b}."
    pairs = [(mangled(r, first), numbers(a, b))]
    if r.random() < 0.5:
        form = r.choice(
            ["Now backwards.", "And backwards?", "backwards please", "Now count down.", "the other way round"]
        )
        return [*pairs, (mangled(r, form), numbers(b, a))]
    c = b + r.randint(1, 6)
    form = r.choice(
        ["Go on to {}.", "and on to {}?", "Now up to {}.", "and now to {}?", "Continue to {}", "further to {}"]
    )
    return [*pairs, (mangled(r, form.format(c)), numbers(b + 1, c))]
