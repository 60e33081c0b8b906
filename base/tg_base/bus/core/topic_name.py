"""Topic name -> kind of topic: the only place that parses a topic's name."""

import re

from tg_schema.errors import BadRequest

_FULL_NAME = re.compile(r"(persistent|non-persistent)://[^/\s]+/[^/\s]+/[^/\s]+")


def is_persistent(topic: str) -> bool:
    """Whether the bus keeps this topic's messages.

    Raises:
        BadRequest: not a full name: `persistent://tenant/namespace/topic` or `non-persistent://tenant/namespace/topic`.
    """
    match = _FULL_NAME.fullmatch(topic)
    if match is None:
        raise BadRequest("not a topic: write persistent://tenant/namespace/topic, or non-persistent://...")
    return match[1] == "persistent"


def check_log(topic: str) -> None:
    """Check that a topic can be a log.

    Raises:
        BadRequest: not a full name, or not persistent.
    """
    if not is_persistent(topic):
        raise BadRequest("only a persistent topic can be a log: write persistent://tenant/namespace/topic")
