"""The providers that this environment has, by their entry points, and what they announce."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

import msgspec

from tg_base.runtime import find_requirement
from tg_flow.providers.registry import GROUP, OTHER_HOUSES, load_provider
from tg_schema.features import Feature

PROVIDERS: Final = tuple(sorted(entry_points(group=GROUP).names - {"replay"}))
"""Without the one that asks nobody: tests/flow/test_replay.py."""
REQUIREMENTS: Final = {point.name: find_requirement(point) for point in entry_points(group=GROUP)} | OTHER_HOUSES
"""What the errors and the documents say to install."""
PLACES: Final = {point.name: point.module for point in entry_points(group=GROUP)}


def native_features(provider: str, table: Mapping[str, Any]) -> frozenset[Feature]:
    """What a provider has itself with these options."""
    found = load_provider(provider)
    return found.kind.find_native_features(msgspec.convert({**found.defaults, **table}, found.kind.Options))
