"""Which model server runs a request: the scheduler of an instance gateway. No network, no clock, no randomness."""

from tg_base.instances.admission import ADMISSIONS, saturation
from tg_base.instances.attainment import Attainment, RouteAttainment
from tg_base.instances.endpoint import Endpoint
from tg_base.instances.fingerprint import (
    CHARACTERS_PER_TOKEN,
    NO_FINGERPRINT,
    Fingerprint,
    fingerprint_prompt,
    fingerprint_text,
    fingerprint_tokens,
    salt_tokens,
)
from tg_base.instances.flow_control import FlowControl
from tg_base.instances.instance_request import InstanceRequest, InstanceUsage, Objective
from tg_base.instances.kv_blocks import KvBlocks
from tg_base.instances.load_report import AdapterReport, LoadReport, Residency
from tg_base.instances.pick import Pick, Rejection
from tg_base.instances.placement import Placement
from tg_base.instances.policies import DEFAULT_POLICY, POLICIES
from tg_base.instances.policy import Choice, Policy, Refusal, Situation
from tg_base.instances.queue_limits import BandLimits, QueueLimits
from tg_base.instances.scheduler import Scheduler
from tg_base.instances.server_state import ServerState
from tg_base.instances.shared_state import DEFAULT_TIMING, SharedState, SharingTiming
from tg_base.instances.sliding_window import Attained
from tg_base.instances.waiting import Waiting

__all__ = [
    "ADMISSIONS", "CHARACTERS_PER_TOKEN", "DEFAULT_POLICY", "DEFAULT_TIMING", "NO_FINGERPRINT", "POLICIES",
    "AdapterReport", "Attained", "Attainment", "BandLimits", "Choice", "Endpoint", "Fingerprint",
    "FlowControl", "InstanceRequest", "InstanceUsage", "KvBlocks", "LoadReport", "Objective", "Pick", "Placement",
    "Policy", "QueueLimits", "Refusal", "Rejection", "Residency", "RouteAttainment", "Scheduler", "ServerState",
    "SharedState", "SharingTiming", "Situation", "Waiting", "fingerprint_prompt", "fingerprint_text",
    "fingerprint_tokens", "salt_tokens", "saturation",
]  # fmt: skip
