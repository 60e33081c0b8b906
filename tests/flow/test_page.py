"""`/` for a browser: the page and its files, for everybody; beside TGI's health, which other clients find there."""

import gzip
import hashlib
import re
from typing import Final

import pytest
from aiohttp import ClientSession
from msgspec import structs

from tests.flow.open_gateway import MOUNTS, ON_ANY_PORT, open_gateway
from tests.flow.test_gateway_auth import LOCKED
from tests.uv_command import ROOT
from tg_base.config import GatewayConfig

FILES: Final = ROOT / "gateway" / "tg_gateway" / "dialects" / "native" / "page_files"
BROWSER: Final = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "gzip, br"}
LIBRARIES: Final = re.findall(
    r"^\| `(\S+)` .*`([0-9a-f]{64})`", (FILES / "LICENSES.md").read_text("utf-8"), re.MULTILINE
)
OWN: Final = sorted(path for path in FILES.iterdir() if path.name not in {"LICENSES.md", *dict(LIBRARIES)})
MAX_LINES: Final = 1_645
MAX_PACKED_BYTES: Final = 54_000
"""60 kB on the wire, with the heads of the answers."""


@pytest.mark.parametrize("config", [ON_ANY_PORT, LOCKED], ids=["open", "locked"])
async def test_everybody_gets_the_page_and_its_files(config: GatewayConfig) -> None:
    async with open_gateway(config) as it:
        http = ClientSession(it.gateway.url, auto_decompress=False)
        async with http, http.get("", headers=BROWSER) as response:
            page = gzip.decompress(await response.read()).decode()
            assert (response.status, response.content_type) == (200, "text/html")
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'; ")
            assert not re.search("unsafe|data:|https?:", response.headers["Content-Security-Policy"])
        packed = 0
        for path in FILES.glob("*.[jcs]*"):
            async with ClientSession(it.gateway.url, auto_decompress=False) as http:
                async with http.get(f"page/{path.name}", headers=BROWSER) as response:
                    assert response.headers["Content-Encoding"] == "gzip"
                    packed += len(body := await response.read())
                    assert gzip.decompress(body) == path.read_bytes()
                async with http.get(f"page/{path.name}", headers={"Accept-Encoding": "identity"}) as response:
                    assert await response.read() == path.read_bytes()
        assert packed <= MAX_PACKED_BYTES
        assert re.findall(r'<a href="([^"]+)"', page) == ["docs", "metrics", "instances"]
        assert set(re.findall(r'(?:src|href)="page/([^"]+)"', page)) < {path.name for path in FILES.iterdir()}
        async with it.http.get("page/LICENSES.md") as response:
            assert response.status == 404
        async with it.http.post("", headers=BROWSER, data=b"{}") as response:
            assert response.status == (401 if config.keys else 422)


async def test_other_clients_find_tgis_health() -> None:
    async with open_gateway(listed=True) as it:
        for accepted in ("*/*", "application/json"):
            async with it.http.get("", headers={"Accept": accepted}) as response:
                assert (response.status, await response.read()) == (200, b"")


async def test_without_tgis_door_all_get_the_page() -> None:
    mounts = tuple(mount for mount in MOUNTS if (mount.method, mount.path, mount.accept) != ("GET", "/", ""))
    async with open_gateway(mounts=mounts) as it, it.http.get("") as response:
        assert (response.status, response.content_type) == (200, "text/html")


async def test_it_can_be_switched_off() -> None:
    async with open_gateway(structs.replace(ON_ANY_PORT, page=False)) as it:
        for path in ("", "page/page.js"):
            async with it.http.get(path, headers=BROWSER) as response:
                assert (response.status, "`page` of [gateway]" in await response.text()) == (404, True)


def test_libraries_are_the_files_that_their_list_says() -> None:
    assert len(LIBRARIES) == 2
    for name, digest in LIBRARIES:
        assert hashlib.sha256((FILES / name).read_bytes()).hexdigest() == digest


def test_our_files_are_small_and_write_no_html() -> None:
    texts = [path.read_text("utf-8") for path in OWN]
    assert sum(text.count("\n") for text in texts) <= MAX_LINES
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|cookie", "".join(texts))
    kept = [path.name for path, text in zip(OWN, texts, strict=True) if re.search("(local|session)Storage", text)]
    assert kept == ["chats.js"]
