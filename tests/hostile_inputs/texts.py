"""Small expressions, templates and texts that mean much work."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from tests.unit.source_imports import ROOMS

GUARDED: Final = frozenset({"tg_picker.pools.catalogue_builder._PART"})
"""Expressions that see a text only after another one has matched all of it."""
_SEARCHING: Final = frozenset({"search", "sub", "split", "findall", "finditer"})


class Use(NamedTuple):
    """An expression, and how it is used: at each place of a text, or at its beginning alone."""

    pattern: "re.Pattern[str] | re.Pattern[bytes]"
    way: Literal["search", "match"]


_ATOMS: Final = ("a", "[ab]", ".", r"\w", "(?:a|ab)", "(?:a|a)", r"\d", "[^b]")


def make_patterns(random: Random, size: int) -> Iterator[str]:
    """Regular expressions in the syntax that Python, ECMAScript and Rust share."""
    yield from (
        "(a+)+$",
        "(?:a|a)*b",
        "(?:a*)*b",
        "(?:x+x+)+y",
        ".*.*.*.*b",
        f"a{{0,{50 * size}}}b",
        f".*a.{{{10 * size}}}",
        "((a{1,99}){1,99}){1,99}",
        "a{1000000000}",
        f"(a?){{{size}}}a{{{size}}}",
        "(?:a|(?:a|(?:a|b{0,30}){0,30}){0,30})+",
        "[\x00-\U0010ffff]{900}",
        rf"(?:\w|\d|[^\n]){{{10 * size}}}",
        "[" + "".join(chr(0x4E00 + 2 * at) for at in range(50 * size)) + "]{0,500}",
    )
    yield "(?:" + "|".join("a" * 9 + chr(97 + at % 26) * (at // 26 + 1) for at in range(6 * size)) + "){1,3}"
    yield "(" * 20 * size + "a" + ")" * 20 * size
    yield "a{" + "9" * 20 * size + "}"
    yield "(a{" + "9" * 1000 + "}){" + "9" * 900 + "}"
    yield "(?:" * size + "a" + "{0,9}){0,9}" * size
    yield "(?:a|b|ab)*c" * size
    yield "|".join("a" * at + "b" for at in range(size))
    for _ in range(size // 2):
        pattern = random.choice(_ATOMS)
        for _ in range(random.randrange(1, 6)):
            repeat = random.choice(("*", "+", "?", f"{{{random.randrange(3)},{random.randrange(3, 99)}}}"))
            pattern = (
                f"(?:{pattern}{random.choice(_ATOMS)}){repeat}" if random.random() < 0.7 else f"{pattern}|(?:{pattern})"
            )
        yield f"^{pattern}$"


def make_stops(size: int) -> Iterator[str]:
    """Texts at which an answer may end."""
    yield from ("a" * 10_000 * size + "b", "ab" * 400, "\0", "e\u0301" * 8, "\U0001f468\u200d" * 100, " " * 250)


def make_paths(size: int) -> Iterator[str]:
    """What stands in a URL, percent-encoded."""
    yield from ("a/" * 90 * size, "%2e%2e/" * 30 * size, "a:" * 90 * size, ":" * 200 * size, "%2F" * 60 * size)
    yield from ("%00", "%ff%fe", "%ED%A0%80", "%7Bmodel%7D", "a%0D%0Ab", ";" * 200 * size, "%25" * 60 * size, "*")


def make_templates(size: int) -> Iterator[str]:
    """Jinja templates; `values` is a list and `text` a text."""
    loops = "".join("{% for x in values %}" for _ in range(size)) + "x" + "{% endfor %}" * size
    # Only their own author's models get chat templates, so their memory has no bound but that of their time.
    doublings = min(size, 20)
    yield loops
    yield loops.replace("values", "range(10000)")
    yield "{{ " + "(" * size + "values" + "|list)" * size + " }}"
    yield "{% set x = text %}" + "{% set x = x ~ x %}" * doublings + "{{ x }}"
    yield "{% set x = text %}" + "{% set x = x + x %}" * doublings + "{{ x }}"
    yield "{% set x = 9 %}" + "{% set x = x * x %}" * size + "{{ x }}"
    yield "{{ 9" + " ** 9" * size + " }}"
    yield "{{ text|replace('', text)|replace('', text)|replace('', text) }}"
    yield "{{ range(99999999999)|list }}"
    yield "{{ text * 999999999 }}"
    yield "{{ values|sort|unique|join(text)|upper|title|wordcount }}" * size
    yield "{{ " + "-" * 100 * size + "1 }}"
    yield "{{ " + "[" * 100 * size + "]" * 100 * size + " }}"


def attack(pattern: "re.Pattern[str] | re.Pattern[bytes]", length: int) -> Iterator[str]:
    """Texts at which a pattern may look again and again: its own beginning, and one character of it many times."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    literal = re.sub(r"[\\^$.*+?{}()\[\]|]", "", source)
    for character in sorted({*literal, *" \t\n0aA-.,:;{\"'[(`"}):
        for start in ("", "- ", literal[:3]):
            yield start + character * length + "\x00"


def own_patterns() -> Iterator[tuple[str, Use]]:
    """Every expression that a module of ours has compiled, as its module uses it."""
    for package in ROOMS:
        (folder,) = import_module(package).__path__
        for file in sorted(Path(folder).rglob("*.py")):
            source = file.read_text("utf-8")
            if "re.compile(" in source:
                name = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
                for word, value in vars(import_module(name)).items():
                    if isinstance(value, re.Pattern) and f"{name}.{word}" not in GUARDED:
                        used = re.search(rf"\b{word}\.(\w+)", source)
                        yield f"{name}.{word}", Use(value, "search" if used and used[1] in _SEARCHING else "match")
