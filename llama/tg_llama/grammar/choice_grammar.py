"""Texts to choose from -> a grammar that allows each of them, and nothing else."""

from tg_llama.grammar.regex_grammar import escape_text, write_pattern
from tg_schema.errors import BadRequest

MAX_CHOICES = 64
MAX_CHOICE_CHARACTERS = 1000


def choice_grammar(choices: tuple[str, ...]) -> str:
    """The grammar.

    Raises:
        BadRequest: there are too many choices, or one is too long or no Unicode.
    """
    if len(choices) > MAX_CHOICES or any(len(choice) > MAX_CHOICE_CHARACTERS for choice in choices):
        raise BadRequest(f"choice may have {MAX_CHOICES} texts of at most {MAX_CHOICE_CHARACTERS} characters")
    if any("\ud800" <= character <= "\udfff" for choice in choices for character in choice):
        raise BadRequest("choice: a text is not Unicode")
    # One pattern: of several terminals the longest would be taken, though a shorter one is a choice too.
    return f"start: {write_pattern('|'.join([escape_text(choice) for choice in choices]))}"
