"""Which model server runs a request: the scheduler of an instance gateway. No network, no clock, no randomness."""

from tg_picker.core.admission import ADMISSIONS, saturation
from tg_picker.core.attainment import Attainment, RouteAttainment
from tg_picker.core.endpoint import Endpoint
from tg_picker.core.fingerprint import (
    CHARACTERS_PER_TOKEN,
    NO_FINGERPRINT,
    Fingerprint,
    fingerprint_prompt,
    fingerprint_text,
    fingerprint_tokens,
    salt_tokens,
)
from tg_picker.core.flow_control import FlowControl
from tg_picker.core.instance_request import InstanceRequest, InstanceUsage, Objective
from tg_picker.core.kv_blocks import KvBlocks
from tg_picker.core.load_report import AdapterReport, LoadReport, Residency
from tg_picker.core.pick import Pick, Rejection
from tg_picker.core.placement import Placement
from tg_picker.core.policies import DEFAULT_POLICY, POLICIES
from tg_picker.core.policy import Choice, Policy, Refusal, Situation
from tg_picker.core.queue_limits import BandLimits, QueueLimits
from tg_picker.core.scheduler import Scheduler
from tg_picker.core.server_state import ServerState
from tg_picker.core.shared_state import DEFAULT_TIMING, SharedState, SharingTiming
from tg_picker.core.sliding_window import Attained
from tg_picker.core.waiting import Waiting

__all__ = [
    "ADMISSIONS", "CHARACTERS_PER_TOKEN", "DEFAULT_POLICY", "DEFAULT_TIMING", "NO_FINGERPRINT", "POLICIES",
    "AdapterReport", "Attained", "Attainment", "BandLimits", "Choice", "Endpoint", "Fingerprint",
    "FlowControl", "InstanceRequest", "InstanceUsage", "KvBlocks", "LoadReport", "Objective", "Pick", "Placement",
    "Policy", "QueueLimits", "Refusal", "Rejection", "Residency", "RouteAttainment", "Scheduler", "ServerState",
    "SharedState", "SharingTiming", "Situation", "Waiting", "fingerprint_prompt", "fingerprint_text",
    "fingerprint_tokens", "salt_tokens", "saturation",
]  # fmt: skip
