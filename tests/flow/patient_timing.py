"""Heartbeats for a slow machine: often, so that a test need not wait for them, and never missed."""

from dataclasses import dataclass

from typing_extensions import override

from tg_base.protocol import HeartbeatTiming


@dataclass(frozen=True, slots=True)
class PatientTiming(HeartbeatTiming):
    """Says often that it works; takes nobody for dead on a slow machine."""

    @property
    @override
    def dead_after(self) -> float:
        return 30.0
