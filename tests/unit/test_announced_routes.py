"""Announcements -> routes of flows that no file names: which topics are the queue of a flow, and which are not."""

import pytest

from tg_base.client.announced_routes import AnnouncedRoutes
from tg_base.client.membership import Membership
from tg_base.protocol import HeartbeatTiming, Presence
from tg_schema.topics import Topics

TOPICS = Topics("public/ours")


def known(*processors: Presence) -> tuple[Membership, AnnouncedRoutes]:
    presence = Membership(HeartbeatTiming(), lambda: 0.0)
    for each in processors:
        presence.update(each)
    return presence, AnnouncedRoutes(presence, TOPICS)


def serving(name: str, *queues: str, leaving: bool = False) -> Presence:
    return Presence(name, queues, 1, 0, (f"model of {name}",), leaving=leaving)


def queue(flow: str, service: str = "text-completion") -> str:
    return TOPICS.request(flow, service)


def test_each_flow_once_in_the_order_of_names_and_the_same_object_until_it_changes() -> None:
    presence, routes = known(serving("p", queue("b"), queue("a-text-completion")), serving("q", queue("b")))
    found = routes.find()
    assert [(route.flow, route.request, route.plain) for route in found] == [
        ("a-text-completion", queue("a-text-completion"), False),
        ("b", queue("b"), False),
    ]
    presence.update(serving("q", queue("b")))
    assert routes.find() is found
    presence.update(serving("q", queue("c")))
    assert [route.flow for route in routes.find()] == ["a-text-completion", "b", "c"]


@pytest.mark.parametrize(
    "processor",
    [
        serving("p", queue("a"), leaving=True),
        serving("p", queue("a", "prompt")),
        serving("p", Topics("public/theirs").request("a", "text-completion")),
        serving("p", queue("a/b")),
        serving("p", queue("")),
        serving("p", queue("x" * 101)),
        serving("p", "persistent://public/ours/tg-request-text-completion", "q", ""),
        Presence("p", (queue("a"),), 1, 0),
    ],
)
def test_what_is_no_queue_of_a_flow_or_has_no_model_is_no_route(processor: Presence) -> None:
    assert known(processor)[1].find() == ()
