"""Records of usage on the bus -> hourly sums -> answers: who has used which model, and at what cost."""

from tg_flow.usage.usage_kind import UsageConfig, UsageKind

__all__ = ["UsageConfig", "UsageKind"]
