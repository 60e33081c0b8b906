"""Presence -> the routes of flows that no file names: the models that processors announce in their queues."""

from typing import Any

from tg_base.client.membership import Membership
from tg_base.protocol import Route
from tg_schema import TEXT_COMPLETION
from tg_schema.topics import Topics


class AnnouncedRoutes:
    """The text completion of every flow for which a live processor announces a model.

    Args:
        presence: the processors that are known.
        topics: the names of our own topics; a queue of another name has no flow.
    """

    def __init__(self, presence: Membership, topics: Topics) -> None:
        self._presence = presence
        self._topics = topics
        self._version = -1
        self._found: tuple[Route[Any, Any], ...] = ()

    def find(self) -> tuple[Route[Any, Any], ...]:
        """The routes in the order of their flows, as in every other process; the same object until they change."""
        if self._version != self._presence.version:
            self._version = self._presence.version
            topics, service = self._topics, TEXT_COMPLETION.name
            queues = {queue for each in self._presence if each.models and not each.leaving for queue in each.queues}
            flows = sorted(filter(None, (topics.find_flow(queue, service) for queue in queues)))
            if flows != [route.flow for route in self._found]:
                self._found = tuple(
                    Route(flow, TEXT_COMPLETION, topics.request(flow, service), topics.response(flow, service))
                    for flow in flows
                )
        return self._found
