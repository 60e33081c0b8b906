"""Texts of a request and its answer -> their tokens, estimated if the provider has not counted them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from tg_schema.completion import Usage
from tg_schema.conversation import ImagePart

TOKEN_BYTES: Final = 4
"""Bytes of text for a token."""
IMAGE_BYTES: Final = 4096
"""Bytes of text that have as many tokens as an image usually has, however large its file is."""
MAX_TOKEN_CHARACTERS: Final = 7
"""Mean length of a stream's pieces above which a piece is more than one token. Many servers send token by token, of
about four characters each; others send several at once."""


def measure_text(value: object) -> int:
    """Bytes of all text in a record; a token's id counts as a token, and an image as a usual one."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if isinstance(value, ImagePart):
        return IMAGE_BYTES
    if isinstance(value, msgspec.Struct):
        return sum(measure_text(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, Mapping):
        return sum(measure_text(name) + measure_text(each) for name, each in value.items())
    if isinstance(value, (tuple, list)):
        return TOKEN_BYTES * len(value) if value and isinstance(value[0], int) else sum(map(measure_text, value))
    return 0


def estimate_usage(told: Usage, prompt: int, pieces: int, letters: int, *, complete: bool, answers: bool) -> Usage:
    """What a call has used: the provider's counts, and for counts that are missing an estimate by the text.

    Args:
        told: the provider's counts.
        prompt: bytes of the prompt's text; 0 = not known.
        pieces: events with content so far.
        letters: characters of their content.
        complete: whether the call reached its end.
        answers: whether the answer has tokens; vectors have none.
    """
    asked, answer = told.in_token, told.out_token
    if asked is None:
        asked = -(-prompt // TOKEN_BYTES) or None
    # Some providers count one token at the beginning, and the others at the end, which did not come.
    if answers and (answer is None or (not complete and answer < pieces)):
        single = letters <= MAX_TOKEN_CHARACTERS * pieces
        answer = max(answer or 0, pieces if single else -(-letters // TOKEN_BYTES))
    return msgspec.structs.replace(told, in_token=asked, out_token=answer)
