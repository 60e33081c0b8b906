"""Flow, service or process -> topic name; and TrustGraph's logical queue ids.

A logical id is `CLASS:TOPICSPACE:TOPIC` and maps to `persistence://TOPICSPACE/CLASS/TOPIC` (trustgraph-wire 1.1).
"""

import re
from dataclasses import dataclass
from typing import Final

FLOW_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""The permitted form of a flow's name."""
_PERSISTENCE = {
    "flow": "persistent",
    "request": "non-persistent",
    "response": "non-persistent",
    "notify": "non-persistent",
}


def resolve_topic(name: str) -> str:
    """The full topic name for one of TrustGraph's logical ids; a full name is returned unchanged.

    Raises:
        ValueError: `name` is neither a full topic name nor a logical id.
    """
    if "://" in name:
        return name
    kind, space, topic = [*name.split(":", 2), "", ""][:3]
    if kind not in _PERSISTENCE or not space or not topic:
        raise ValueError(f"{name!r} is neither a topic (persistent://...) nor a queue id (request:tg:...)")
    return f"{_PERSISTENCE[kind]}://{space}/{kind}/{topic}"


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of our own topics in one Pulsar namespace. docs/topics.md says which are persistent, and why."""

    namespace: str = "public/default"

    @property
    def presence(self) -> str:
        """The topic on which processors announce themselves."""
        return f"non-persistent://{self.namespace}/tg-presence"

    @property
    def announce(self) -> str:
        """The topic on which requestors ask all processors to announce themselves."""
        return f"non-persistent://{self.namespace}/tg-announce"

    @property
    def placements(self) -> str:
        """The topic on which pickers and pools share their placements on model servers."""
        return f"non-persistent://{self.namespace}/tg-placements"

    @property
    def usage(self) -> str:
        """The topic of one `UsageRecord` for each call of a model."""
        return f"persistent://{self.namespace}/tg-usage"

    def request(self, flow: str, service: str) -> str:
        """The work queue of one service of one flow."""
        return f"persistent://{self.namespace}/tg-request-{flow}-{service}"

    def find_flow(self, request: str, service: str) -> str | None:
        """The flow whose work queue of a service this topic is; None = the topic is no such queue."""
        flow = request.removeprefix(self.request("", "").removesuffix("-")).removesuffix(f"-{service}")
        return flow if FLOW_NAME.fullmatch(flow) and request == self.request(flow, service) else None

    def response(self, flow: str, service: str) -> str:
        """The topic of the responses to plain peers, which name no inbox."""
        return f"non-persistent://{self.namespace}/tg-response-{flow}-{service}"

    def inbox(self, requestor: str) -> str:
        """The topic of all responses to one requestor."""
        return f"non-persistent://{self.namespace}/tg-inbox-{requestor}"

    def control(self, processor: str) -> str:
        """The topic of cancels, nacks and heartbeats to one processor."""
        return f"non-persistent://{self.namespace}/tg-control-{processor}"

    def jobs(self, flow: str) -> str:
        """The topic of responses in the background that a process of the part `jobs` is to make at once."""
        return f"persistent://{self.namespace}/tg-jobs-{flow}"

    @property
    def batches(self) -> str:
        """The topic of batches that a gateway is to make."""
        return f"persistent://{self.namespace}/tg-batches"

    def flex_queue(self, request_topic: str) -> str:
        """The topic of requests that wait until the processors of a work queue have capacity."""
        return f"persistent://{self.namespace}/tg-flex-{_flat(request_topic)}"

    def kept(self, name: str) -> str:
        """The log of one answer that is kept, by its name."""
        return f"persistent://{self.namespace}/tg-kept-{name}"

    def dead_letter(self, topic: str) -> str:
        """The topic for unreadable messages of `topic`."""
        return f"persistent://{self.namespace}/tg-dead-letter-{_flat(topic)}"


def _flat(topic: str) -> str:
    return topic.partition("://")[2].replace("/", "-").replace(":", "-")
