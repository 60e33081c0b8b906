"""Key -> its rights: the groups of tools that it may name, whether it may keep responses, whether it is an admin."""

from typing import Final

from tg_base.config import GatewayConfig
from tg_base.protocol import EncodedRequest
from tg_base.telemetry import REFUSALS
from tg_schema import AgentRequest, TextCompletionRequest
from tg_schema.agent import ALL_GROUPS, DEFAULT_GROUP
from tg_schema.errors import AccessDenied
from tg_schema.usage_report import UsageRequest

ANYBODY_KEY: Final = "anybody"
"""The key name of all requests while no key is required."""
MAX_NAME_CHARACTERS = 64
"""Characters of a group's name that an error repeats."""
ADMIN_OPERATIONS: Final = frozenset({"load-adapter", "unload-adapter"})
"""Operations that change what all keys are served."""


class KeyRights:
    """What each key may ask.

    Args:
        config: the keys.

    Attributes:
        storing: names of the keys whose answers may be kept; None stands for requests without a key.
        attaching: names of the keys whose requests may get the answers of equal ones.
        admins: names of the keys that may see and change what affects all keys.
    """

    def __init__(self, config: GatewayConfig) -> None:
        limited = {key.name: key.groups for key in config.keys if key.groups is not None}
        self._groups = {name: groups for name, groups in limited.items() if ALL_GROUPS not in groups}
        names = {None, ANYBODY_KEY, *(key.name for key in config.keys)}
        storeless = {key.name for key in config.keys if not key.store}
        self.storing = frozenset(names - storeless if config.store else ())
        self.attaching = frozenset(key.name for key in config.keys if key.attach is not None)
        self.admins = frozenset(key.name for key in config.keys if key.admin)

    def check_admin(self, key: str | None) -> None:
        """Check that the key may see and change what affects all keys.

        Raises:
            AccessDenied: the key may not.
        """
        if key not in self.admins:
            raise AccessDenied(
                "this key may not ask for this; a key may that has admin = true in its table [[gateway.keys]] of the "
                "configuration"
            )

    def check(self, key: str | None, service: str, request: object) -> None:
        """Check that the key may send this request.

        Raises:
            AccessDenied: the request needs another group of tools (by name, by "*", or by naming none), or an admin's
                rights.
        """
        if _needs_admin(request, key):
            self.check_admin(key)
        allowed = self._groups.get(key or "")
        if allowed is None or not isinstance(request, AgentRequest):
            return
        wanted = (DEFAULT_GROUP,) if request.group is None else request.group
        for group in wanted:
            if group not in allowed:
                REFUSALS.labels(service, "group").inc()
                may = f"name {' or '.join(allowed)} in `group`" if allowed else "it may use none"
                name = group[:MAX_NAME_CHARACTERS]
                raise AccessDenied(f'this key may not use the tools of the group "{name}"; {may}')


def _needs_admin(request: object, key: str | None) -> bool:
    match request:
        case UsageRequest():
            # A key may see what it has used itself.
            return request.key != key
        case EncodedRequest():
            return "load_adapter" in request.features
        case TextCompletionRequest():
            return request.operation in ADMIN_OPERATIONS
        case _:
            return False
