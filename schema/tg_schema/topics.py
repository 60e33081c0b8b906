"""Where messages go: topic names, and the predecessor's logical queue ids.

A logical id is `CLASS:TOPICSPACE:TOPIC` and maps to `persistence://TOPICSPACE/CLASS/TOPIC` (trustgraph-wire 1.1).
"""

from dataclasses import dataclass

_PERSISTENCE = {
    "flow": "persistent",
    "request": "non-persistent",
    "response": "non-persistent",
    "notify": "non-persistent",
}


def resolve_topic(name: str) -> str:
    """The full topic name for a full name (passed through) or one of the predecessor's logical ids.

    Raises:
        ValueError: neither of the two.
    """
    if "://" in name:
        return name
    kind, space, topic = [*name.split(":", 2), "", ""][:3]
    if kind not in _PERSISTENCE or not space or not topic:
        raise ValueError(f"{name!r} is neither a topic (persistent://...) nor a queue id (request:tg:...)")
    return f"{_PERSISTENCE[kind]}://{space}/{kind}/{topic}"


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of our own topics in one Pulsar namespace. What is persistent, and why: docs/topics.md."""

    namespace: str = "public/default"

    @property
    def presence(self) -> str:
        """Where every processor announces itself."""
        return f"non-persistent://{self.namespace}/tg-presence"

    def request(self, flow: str, service: str) -> str:
        """The work queue of one service of one flow."""
        return f"persistent://{self.namespace}/tg-request-{flow}-{service}"

    def response(self, flow: str, service: str) -> str:
        """Where a plain peer, that names no inbox of its own, finds its responses."""
        return f"non-persistent://{self.namespace}/tg-response-{flow}-{service}"

    def inbox(self, requestor: str) -> str:
        """Where one requestor process reads all its responses."""
        return f"non-persistent://{self.namespace}/tg-inbox-{requestor}"

    def control(self, processor: str) -> str:
        """Where one processor hears cancels, resends and beats."""
        return f"non-persistent://{self.namespace}/tg-control-{processor}"

    def queue_control(self, request_topic: str) -> str:
        """Where all processors of a work queue hear the cancel of a request that none of them has yet."""
        return f"non-persistent://{self.namespace}/tg-control-{_flat(request_topic)}"

    def dead_letter(self, topic: str) -> str:
        """Where messages of `topic` go that nobody can read."""
        return f"persistent://{self.namespace}/tg-dead-letter-{_flat(topic)}"


def _flat(topic: str) -> str:
    return topic.partition("://")[2].replace("/", "-").replace(":", "-")
