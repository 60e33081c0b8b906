"""Where endpoints come from: files of llm-d and AIBrix, configuration, DNS; and their edits."""

import asyncio
import socket
from collections.abc import MutableMapping
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import msgspec
import pytest
import structlog

from tests.picker.pools.test_pool_resources import POOL, ROUTE
from tests.unit.test_config_edits import replace, seen
from tg_picker.core import Endpoint
from tg_picker.pools import (
    Catalogue,
    Destination,
    Host,
    Pool,
    PoolSources,
    PoolView,
    join_address,
    make_view,
    split_address,
)
from tg_picker.pools.endpoint_file import MODEL_LABEL, parse_endpoint_file
from tg_picker.pools.pool_sources import make_one_pool
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_picker.provider import PoolOptions
from tg_schema.errors import BadRequest

LLM_D = """
endpoints:
- name: a
  namespace: default
  address: 10.0.0.1
  port: "8000"
  labels:
    app: vllm
- name: b
  namespace: ml
  address: 2001:db8::2
  port: 8001
  labels: {app: vllm, zone: x}
"""
AIBRIX = """
models:
- name: llama
  endpoints:
  - 10.0.0.1:8000
  - gpu-2.example:8000
- name: qwen
  endpoints: ["10.0.0.1:8000", "[::1]:9"]
"""
FILE = Path("endpoints.yaml")
VLLM = {"app": "vllm"}


def test_a_file_of_llm_d() -> None:
    assert parse_endpoint_file(LLM_D, FILE) == (
        Host("10.0.0.1", (8000,), "a", {"app": "vllm"}),
        Host("2001:db8::2", (8001,), "ml/b", {"app": "vllm", "zone": "x"}),
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [(AIBRIX, "line 6, column 5"), (LLM_D.replace("10.0.0.1", "gpu-1"), "line 5, column 3")],
)
def test_names_where_only_addresses_can_be_used(text: str, place: str) -> None:
    with pytest.raises(BadRequest, match=f"^endpoints.yaml, {place}: gpu-. .*write one, or put the name into `names`"):
        parse_endpoint_file(text.replace("gpu-2.example", "gpu-2"), FILE, ip_only=True)


def test_an_address_has_one_form() -> None:
    assert join_address("2001:DB8:0:0::0001", 80) == "[2001:db8::1]:80"


def test_a_file_of_aibrix() -> None:
    assert parse_endpoint_file(AIBRIX, FILE) == (
        Host("10.0.0.1", (8000,), labels={MODEL_LABEL: "llama"}, models=("llama", "qwen")),
        Host("gpu-2.example", (8000,), labels={MODEL_LABEL: "llama"}, models=("llama",)),
        Host("::1", (9,), labels={MODEL_LABEL: "qwen"}, models=("qwen",)),
    )


FAULTS = [
    ("endpoints: []\nx: 1", 'line 2, column 1: unknown field "x" in the file; known are endpoints'),
    ("a: 1", 'line 1, column 1: unknown field "a"'),
    ("", "needs one document with the key endpoints or models, not 0"),
    (LLM_D.replace("8001", "0"), "line 12, column 3: port must be a whole number from 1 to 65535, not 0"),
    (LLM_D.replace("8001", "http"), "line 12, column 3: port must be a whole number from 1 to 65535, not http"),
    (LLM_D.replace("10.0.0.1", "http://a"), 'line 5, column 3: "http://a" is no IP address or host name'),
    (LLM_D.replace("name: b", "name: a").replace("ml", "default"), 'line 9, column 3: the name "a" is used twice'),
    (LLM_D.replace("2001:db8::2", "10.0.0.1").replace("8001", "8000"), "line 11, column 3: 10.0.0.1:8000 is there tw"),
    (LLM_D.replace("adress", "address").replace("address", "adress"), 'unknown field "adress" in endpoints.0; did you'),
    (AIBRIX.replace("gpu-2.example:8000", "http://gpu-2:8000"), '"http://gpu-2:8000" must be HOST:PORT, without a sch'),
    (AIBRIX.replace('"[::1]:9"', '"10.0.0.1:8000"'), "10.0.0.1:8000 serves qwen already; keep one"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), FAULTS)
def test_a_wrong_file_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_endpoint_file(text, FILE)
    assert sentence in caught.value.message
    assert caught.value.message.startswith("endpoints.yaml")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", ("a", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[a]:1", None),
        ("a", None),
        ("a:", None),
        ("a:65536", None),
        ("a:٣", None),
        ("a/b:1", None),
        ("::1:1", None),
        (":1", None),
    ],
)
def test_addresses(text: str, found: tuple[str, int] | None) -> None:
    assert split_address(text) == found


def test_a_pool_selects_by_labels_and_each_port_is_an_endpoint() -> None:
    catalogue = Catalogue({"p": Pool("p", VLLM, (1, 2)), "all": Pool("all", {}, ())})
    hosts = [
        Host("a", name="one", labels=VLLM),
        Host("b", (9,), "two", {**VLLM, "zone": "x"}, ("m",)),
        Host("b", (9,), models=("n", "m"), labels=VLLM),
        Host("c", (9,)),
    ]
    view = make_view(catalogue, hosts)
    assert view.members["p"] == (
        Endpoint("a:1", "one:1", VLLM),
        Endpoint("a:2", "one:2", VLLM),
        Endpoint("b:9", "two", {**VLLM, "zone": "x"}, ("m", "n")),
    )
    assert [each.address for each in view.members["all"]] == ["b:9", "c:9"]
    adapters = [Destination(pool, "x", "x") for pool in ("p", "unknown")]
    assert [view.find_base(each) for each in adapters] == ["", ""]
    assert make_view(catalogue, hosts[:2]).find_base(adapters[0]) == "m"
    assert view.served == {"p": {"m", "n"}, "all": {"m", "n"}}
    assert [each.address for each in view.endpoints] == ["a:1", "a:2", "b:9", "c:9"]


class Told:
    """A follower that keeps what it is told."""

    def __init__(self) -> None:
        self.views: asyncio.Queue[PoolView] = asyncio.Queue()

    def __call__(self, view: PoolView) -> None:
        self.views.put_nowait(view)

    async def next(self) -> PoolView:
        async with asyncio.timeout(30):
            return await self.views.get()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    resources, endpoints = tmp_path / "pools.yaml", tmp_path / "endpoints.yaml"
    resources.write_text(f"{POOL}---{ROUTE}")
    endpoints.write_text(LLM_D)
    return resources, endpoints


async def test_an_edit_of_any_file_is_followed_and_a_wrong_one_refused_as_a_whole(files: tuple[Path, Path]) -> None:
    resources, endpoints = files
    told = Told()
    watcher = PoolWatcher(PoolSources(resources=(resources,), endpoint_files=(endpoints,)), poll=0.01)
    assert [each.name for each in watcher.view.members["assistant"]] == ["a", "ml/b"]
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        async with watcher:
            with watcher.follow(told):
                replace(endpoints, LLM_D.replace("8001", "9000"))
                view = await told.next()
                assert [each.address for each in view.endpoints] == ["10.0.0.1:8000", "[2001:db8::2]:9000"]
                replace(resources, f"{POOL}---{ROUTE.replace('99', '200')}")
                refused = await seen(logs, "pools.refused")
                assert "line 31, column 11: numerator must be below the denominator, 100" in refused["reason"]
                assert watcher.view is view
                replace(resources, f"{POOL}---{ROUTE}")
                assert await told.next() is watcher.view
                assert (await seen(logs, "pools.in_force"))["recovered"]
                replace(endpoints, LLM_D.replace("vllm", "other"))
                empty = await seen(logs, "pools.empty")
                assert empty["reason"].endswith("label one or select others: there are app: other, zone: x")
                view = await told.next()
                assert view.endpoints == ()
                endpoints.unlink()
                assert "is not there; name an existing endpoint file" in (await seen(logs, "pools.refused"))["reason"]
                assert watcher.view == view
                replace(endpoints, LLM_D)
                assert [each.address for each in (await told.next()).endpoints][1] == "[2001:db8::2]:8001"
                replace(resources, f"{POOL}---{ROUTE.replace('sentiment', 'mood')}")
                catalogue = (await told.next()).catalogue
                assert catalogue.resolve("mood", Random(0))
                assert catalogue.resolve("sentiment", Random(0)) is None


KUBECTL = """{"endpoints": [
{"name": "a", "namespace": "default", "address": "10.0.0.1",
 "port": "8000", "labels": {"app": "vllm", "zone": "a", }},
{"name": "a", "namespace": "ml", "address": "10.0.0.2",
 "port": "8000", "labels": {"app": "vllm", }},
]}
"""
"""What kubectl 1.32 wrote by the template of `picker/docs/instances.md`."""


@pytest.mark.parametrize(("text", "names"), [(KUBECTL, ["a", "ml/a"]), ('{"endpoints": [\n]}\n', [])])
def test_what_kubectl_writes_is_an_endpoint_file(text: str, names: list[str]) -> None:
    assert [host.name for host in parse_endpoint_file(text, Path("endpoints.yaml"))] == names


def test_a_pool_without_endpoints_is_told_and_waits_for_them(files: tuple[Path, Path]) -> None:
    with structlog.testing.capture_logs() as logs:
        assert PoolWatcher(PoolSources(resources=files[:1])).view.members == {"assistant": ()}
    [empty] = logs
    assert (empty["event"], empty["log_level"]) == ("pools.empty", "warning")
    assert "line 8, column 5: no endpoint has the labels app: vllm; label one or select others" in empty["reason"]


def test_what_cannot_be_a_pool_is_refused_at_the_start(files: tuple[Path, Path]) -> None:
    files[0].write_text("", "utf-8")
    with pytest.raises(BadRequest, match="line 1: there is no InferencePool in the resources; add one"):
        PoolWatcher(PoolSources(resources=files[:1], endpoint_files=files[1:]))
    with pytest.raises(BadRequest, match="a has no port; name one, or an InferencePool that selects it"):
        PoolWatcher(PoolSources(hosts=(Host("a"),)))


def test_a_pool_of_http2_is_refused_where_its_servers_are_asked_by_http1(files: tuple[Path, Path]) -> None:
    files[0].write_text(POOL.replace("spec:\n", "spec:\n  appProtocol: kubernetes.io/h2c\n"), "utf-8")
    PoolWatcher(PoolSources(resources=files[:1], endpoint_files=files[1:]))
    options = msgspec.convert({"resources": [str(files[0])], "endpoint_files": [str(files[1])]}, PoolOptions)
    with pytest.raises(BadRequest, match=r"line 7, column 3: kubernetes.io/h2c: the provider `pool` speaks HTTP/1.1"):
        PoolWatcher(options.sources("m"))


def test_hosts_without_resources_are_one_pool() -> None:
    view = PoolWatcher(PoolSources(hosts=(Host("a", (1,), models=("m",)),), catalogue=make_one_pool("mine"))).view
    assert view.members == {"mine": (Endpoint("a:1", "a:1", models=("m",)),)}
    found = view.catalogue.resolve("m", Random(0), served=view.served)
    assert found is not None
    assert (found.pool, found.model, found.adapter) == ("mine", "m", None)


async def test_a_name_may_have_several_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    async with PoolWatcher(PoolSources(names=(Host("a.example", (1,)), Host("a.example", (2,))))) as watcher:
        assert [each.address for each in watcher.view.endpoints] == ["10.0.0.1:1", "10.0.0.1:2"]


async def test_a_name_is_resolved_again_and_keeps_its_last_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[str] | None] = [["10.0.0.2", "10.0.0.1", "fd00::1"], None, ["10.0.0.1", "10.0.0.2", "fd00::1"]]

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        assert host == "vllm.example"
        answer = answers.pop(0) if answers else ["10.0.0.3"]
        if answer is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answer]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    told = Told()
    name = Host("vllm.example", (8000,), labels=VLLM, models=("m",))
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs:
        watcher = PoolWatcher(PoolSources(names=(name,)), resolve=0.01)
        assert watcher.view.endpoints == ()
        with watcher.follow(told):
            async with watcher:
                first = await told.next()
                assert [each.address for each in first.endpoints] == [
                    "10.0.0.1:8000",
                    "10.0.0.2:8000",
                    "[fd00::1]:8000",
                ]
                assert first.endpoints[0] == Endpoint("10.0.0.1:8000", "10.0.0.1:8000", VLLM, ("m",))
                last = await told.next()
                assert [each.address for each in last.endpoints] == ["10.0.0.3:8000"]
    assert [each["name"] for each in logs if each["event"] == "pools.unresolved"] == ["vllm.example"]


async def test_names_that_no_server_resolves_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: silent.wait() and [])
    # More than the threads that a loop has for all work.
    resolving = [asyncio.create_task(Host(f"gone-{number}.example").resolve()) for number in range(64)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(lambda: "read") == "read"
    finally:
        silent.set()
        await asyncio.gather(*resolving, return_exceptions=True)
