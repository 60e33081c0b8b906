"""The labels that several metrics have."""

from typing import Final

from tg_base.telemetry.bounded_label import MAX_LABEL_VALUES, BoundedLabel
from tg_base.telemetry.metric import Label

SERVICE: Final = Label("service", "a service of the configuration")
MODEL: Final = Label("model", "a model's name here", MAX_LABEL_VALUES, BoundedLabel().bound)
FLOW: Final = Label("flow", "a flow", MAX_LABEL_VALUES, BoundedLabel().bound)
KEY: Final = Label("key", "the name of an API key", MAX_LABEL_VALUES, BoundedLabel().bound)
OUTCOME: Final = Label("outcome", "`ok`, `dropped`, `left`, or a type of our errors")
DIRECTION: Final = Label("direction", "`in`, `out`")
EVENT: Final = Label("event", "what became of it")
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds of the times until something begins."""
