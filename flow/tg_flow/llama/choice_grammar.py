"""Texts to choose from -> a GBNF grammar that allows each of them, and nothing else."""

from tg_schema.errors import BadRequest

MAX_CHOICES = 64
"""Each may be open at the same time, which costs time at each token."""
MAX_CHOICE_CHARACTERS = 1000

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\x00"}


def choice_grammar(choices: tuple[str, ...]) -> str:
    """The grammar, with the start rule `root`.

    Raises:
        BadRequest: there are too many choices, or one is too long or no Unicode.
    """
    if len(choices) > MAX_CHOICES or any(len(choice) > MAX_CHOICE_CHARACTERS for choice in choices):
        raise BadRequest(f"choice may have {MAX_CHOICES} texts of at most {MAX_CHOICE_CHARACTERS} characters")
    if any("\ud800" <= character <= "\udfff" for choice in choices for character in choice):
        raise BadRequest("choice: a text is not Unicode")
    return "root ::= " + " | ".join([_literal(choice) for choice in choices])


def _literal(text: str) -> str:
    return '"' + "".join([_ESCAPES.get(character, character) for character in text]) + '"'
