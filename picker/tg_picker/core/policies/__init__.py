"""The scheduler: the state of the servers -> the server that runs a request, chosen by one of the policies."""

from tg_picker.core.policies.admission import MAX_QUEUE, AdmissionRule, saturation
from tg_picker.core.policies.policies import DEFAULT_POLICY, load_policy
from tg_picker.core.policies.policy import Choice, Policy, Refusal, SchedulingContext
from tg_picker.core.policies.scheduler import NO_ENDPOINTS_RETRY_SECONDS, SATURATED_RETRY_SECONDS, Scheduler

__all__ = [
    "DEFAULT_POLICY", "MAX_QUEUE", "NO_ENDPOINTS_RETRY_SECONDS", "SATURATED_RETRY_SECONDS",
    "AdmissionRule", "Choice", "Policy", "Refusal", "Scheduler", "SchedulingContext", "load_policy", "saturation",
]  # fmt: skip
