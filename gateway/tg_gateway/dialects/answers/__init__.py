"""Dialect -> gateway: answers without asking a service, and answers that are kept."""

from tg_gateway.dialects.answers.answer import Answer, StreamedAnswer
from tg_gateway.dialects.answers.background import Background, Finish, Waiting
from tg_gateway.dialects.answers.kept_answers import (
    KEPT_SECONDS,
    MAX_KEPT_BYTES,
    NOTHING_KEPT,
    Keep,
    KeptAnswer,
    KeptAnswers,
    Outcome,
)

__all__ = [
    "KEPT_SECONDS",
    "MAX_KEPT_BYTES",
    "NOTHING_KEPT",
    "Answer",
    "Background",
    "Finish",
    "Keep",
    "KeptAnswer",
    "KeptAnswers",
    "Outcome",
    "StreamedAnswer",
    "Waiting",
]
