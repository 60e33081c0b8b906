"""What is known of each server: its placements, its measured speed, its cached prefixes and its adapters."""

from tg_picker.core.state.kv_blocks import KvBlocks
from tg_picker.core.state.missing_adapters import MissingAdapters
from tg_picker.core.state.output_estimates import ASSUMED_OUTPUT_TOKENS, OutputEstimates
from tg_picker.core.state.pick import MAX_FALLBACKS, Pick, Rejection, RejectionReason
from tg_picker.core.state.placement import (
    MAX_OUTPUT_TOKENS,
    Follower,
    LatencySample,
    Placement,
)
from tg_picker.core.state.prefix_owners import MAX_BLOCKS
from tg_picker.core.state.resident_adapters import MAX_ADAPTERS
from tg_picker.core.state.server_speed import FADE_SECONDS, LOAD_SECONDS, EngineSpeed
from tg_picker.core.state.server_state import ServerState

__all__ = [
    "ASSUMED_OUTPUT_TOKENS", "FADE_SECONDS", "LOAD_SECONDS", "MAX_ADAPTERS", "MAX_BLOCKS", "MAX_FALLBACKS",
    "MAX_OUTPUT_TOKENS", "EngineSpeed", "Follower", "KvBlocks", "LatencySample", "MissingAdapters", "OutputEstimates",
    "Pick", "Placement", "Rejection", "RejectionReason", "ServerState",
]  # fmt: skip
