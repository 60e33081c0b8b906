"""Picks the model server that runs a request: the scheduler of an instance gateway. No network, clock or randomness."""

from tg_picker.core.interface import (
    CHARACTERS_PER_TOKEN,
    AdapterReport,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Objective,
    Residency,
    fingerprint_prompt,
    fingerprint_text,
    fingerprint_tokens,
    salt_tokens,
)
from tg_picker.core.peers import DEFAULT_TIMING, SharedState, SharingTiming
from tg_picker.core.policies import (
    DEFAULT_POLICY,
    AdmissionRule,
    Choice,
    Policy,
    Refusal,
    Scheduler,
    SchedulingContext,
    load_policy,
    saturation,
)
from tg_picker.core.queue import Attained, BandLimits, FlowControl, QueueLimits, RouteSlo, SloAttainment, Waiting
from tg_picker.core.state import KvBlocks, Pick, Placement, Rejection, ServerState

__all__ = [
    "CHARACTERS_PER_TOKEN", "DEFAULT_POLICY", "DEFAULT_TIMING", "AdapterReport", "AdmissionRule", "Attained",
    "BandLimits", "Choice", "Endpoint", "Fingerprint", "FlowControl", "InstanceRequest", "InstanceUsage", "KvBlocks",
    "LoadReport", "Objective", "Pick", "Placement", "Policy", "QueueLimits", "Refusal", "Rejection",
    "Residency", "RouteSlo", "Scheduler", "SchedulingContext", "ServerState", "SharedState", "SharingTiming",
    "SloAttainment", "Waiting", "fingerprint_prompt", "fingerprint_text", "fingerprint_tokens", "load_policy",
    "salt_tokens", "saturation",
]  # fmt: skip
