"""Key -> the groups of tools that its requests to agents may name in `group`."""

from tg_base.config import GatewayConfig
from tg_base.telemetry import REFUSALS
from tg_schema import AgentRequest
from tg_schema.agent import ALL_GROUPS, DEFAULT_GROUP
from tg_schema.errors import AccessDenied

MAX_NAME_CHARACTERS = 64
"""Characters of a group's name that an error repeats."""


class KeyGroups:
    """The keys that are limited to some groups.

    Args:
        config: the keys.

    Attributes:
        allowed: the groups of each limited key, by the key's name; empty = there is nothing to check.
    """

    def __init__(self, config: GatewayConfig) -> None:
        limited = {key.name: key.groups for key in config.keys if key.groups is not None}
        self.allowed = {name: groups for name, groups in limited.items() if ALL_GROUPS not in groups}

    def check(self, key: str | None, service: str, request: object) -> None:
        """Check that the key may ask this; only requests to agents have groups.

        Raises:
            AccessDenied: the request asks for another group: by name, by "*", or by naming none.
        """
        allowed = self.allowed.get(key or "")
        if allowed is None or not isinstance(request, AgentRequest):
            return
        wanted = (DEFAULT_GROUP,) if request.group is None else request.group
        for group in wanted:
            if group not in allowed:
                REFUSALS.labels(service, "group").inc()
                may = f"name {' or '.join(allowed)} in `group`" if allowed else "it may use none"
                name = group[:MAX_NAME_CHARACTERS]
                raise AccessDenied(f'this key may not use the tools of the group "{name}"; {may}')
