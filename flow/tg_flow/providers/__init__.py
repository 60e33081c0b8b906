"""Configuration -> provider: a table of providers, and one package per vendor with everything specific to it."""

from tg_flow.providers.check import check_provider
from tg_flow.providers.registry import open_provider, rehearse_provider
from tg_flow.providers.text_completion_kind import TextCompletionKind

__all__ = [
    "TextCompletionKind",
    "check_provider",
    "open_provider",
    "rehearse_provider",
]
