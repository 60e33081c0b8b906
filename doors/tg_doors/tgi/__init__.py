"""TGI's protocol: raw text to text with its tokens, and the parts for protocols of the same shape."""

from tg_doors.tgi.answer_shapes import (
    Details,
    GeneratedText,
    PrefillToken,
    Token,
    make_prefill,
    make_token,
)
from tg_doors.tgi.dialect import MOUNTS, TGI
from tg_doors.tgi.generated_answers import GeneratedAnswer, GeneratedAnswers
from tg_doors.tgi.generation import choose_adapter
from tg_doors.tgi.token_reader import LastStep, Step, TokenReader

__all__ = [
    "MOUNTS",
    "TGI",
    "Details",
    "GeneratedAnswer",
    "GeneratedAnswers",
    "GeneratedText",
    "LastStep",
    "PrefillToken",
    "Step",
    "Token",
    "TokenReader",
    "choose_adapter",
    "make_prefill",
    "make_token",
]
