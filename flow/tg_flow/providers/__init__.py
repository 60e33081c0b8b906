"""Configuration -> provider: rows of data. One package a vendor; nothing else knows what differs."""

from tg_flow.providers.check import check_provider
from tg_flow.providers.registry import open_provider, rehearse_provider

__all__ = [
    "check_provider",
    "open_provider",
    "rehearse_provider",
]
