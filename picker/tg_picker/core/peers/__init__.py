"""Schedulers of several pickers that share their placements, so that they pick like one."""

from tg_picker.core.peers.shared_state import DEFAULT_TIMING, SharedState, SharingTiming

__all__ = ["DEFAULT_TIMING", "SharedState", "SharingTiming"]
