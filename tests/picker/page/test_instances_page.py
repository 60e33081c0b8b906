"""The page of model servers: what clients made up stays text, nothing comes from elsewhere, programs get JSON."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest
from aiohttp import ClientSession
from typing_extensions import override

from tests.picker.page.shown_pool import ShownPool
from tests.unit.test_metrics_page import page_at
from tg_picker.core import Endpoint, InstanceRequest, Pick, Scheduler
from tg_picker.pools import Catalogue, Destination, Pool, PoolView
from tg_picker.status import BOARDS, InstancesStatus, PoolBoard, QueueStatus, RequestFacts
from tg_schema import decode

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
SERVER = Endpoint("10.0.0.1:8000", f"s{EVIL}")
VIEW = PoolView(Catalogue({"p": Pool("p", {}, ())}), {"p": (SERVER,)})


class Read(HTMLParser):
    """The elements of a page, their attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str] = {}
        self.texts: list[str] = []
        self.feed(page)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update({name: value or "" for name, value in attrs})

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    scheduler = Scheduler()
    waiting = (QueueStatus("p", -1, 7, 2.5),)
    board = PoolBoard(
        f"m{EVIL}", "random", scheduler, ShownPool(VIEW, {SERVER.address: EVIL}), lambda: 1.0, totals=BOARDS.totals,
        queues=lambda: waiting,
    )  # fmt: skip
    wanted = InstanceRequest("m", EVIL, 10)
    made = scheduler.pick(wanted, (SERVER,), 0.0)
    assert isinstance(made, Pick)
    record = board.record(RequestFacts(EVIL, EVIL, Destination("p", EVIL, EVIL), 9, 1), wanted, made, 0.0)
    record.fail(EVIL, 500, 1.0)
    with BOARDS.show(board):
        async with page_at(0) as port:
            yield f"http://127.0.0.1:{port}"


async def test_what_clients_made_up_is_text(url: str) -> None:
    async with ClientSession() as http, http.get(f"{url}/instances", headers={"Accept": "text/html"}) as answer:
        assert (answer.status, answer.content_type, answer.charset) == (200, "text/html", "utf-8")
        policy, page = answer.headers["Content-Security-Policy"], await answer.text()
    read = Read(page)
    assert "img" not in read.tags
    assert read.tags.count("script") == 1
    assert not [name for name in read.attributes if name.startswith("on")]
    # In the head of the picker, its server's row (name and problem), its adapter, and four cells of the decision.
    assert sum(EVIL in text for text in read.texts) >= 7
    assert "7" in read.texts
    assert [text for text in read.texts if text.startswith("Pool p: 1 server, ")]
    assert f"{EVIL}: 1 request, believed" in read.texts
    # Style and script are the page's own, by their hashes, and nothing is loaded from anywhere.
    for name in ("style", "script"):
        found = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert found is not None
        assert base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none';")
    assert not {"src", "href", "action"} & read.attributes.keys()
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


async def test_programs_get_json(url: str) -> None:
    async with ClientSession() as http:
        for path, accepted in (("/instances", "*/*"), ("/instances?format=json", "text/html")):
            async with http.get(url + path, headers={"Accept": accepted}) as answer:
                assert answer.content_type == "application/json"
                status = decode(InstancesStatus, await answer.read())
                [picker] = status.pickers
                assert picker.decisions[0].adapter == EVIL
                assert picker.pools[0].servers[0].adapters[0].name == EVIL
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
