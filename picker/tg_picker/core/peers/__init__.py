"""Schedulers of several pickers that share what they placed, and so pick as one."""

from tg_picker.core.peers.shared_state import DEFAULT_TIMING, SharedState, SharingTiming

__all__ = ["DEFAULT_TIMING", "SharedState", "SharingTiming"]
