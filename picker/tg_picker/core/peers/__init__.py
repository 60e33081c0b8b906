"""Schedulers of several pickers that tell each other what they placed, and so pick as one."""

from tg_picker.core.peers.shared_state import DEFAULT_TIMING, SharedState, SharingTiming

__all__ = ["DEFAULT_TIMING", "SharedState", "SharingTiming"]
