"""No door without its row, and no table that nobody has run."""

import re

import pytest

from tests.door_matrix.cells import CELLS
from tests.door_matrix.doors import DOORS
from tests.door_matrix.killed import KILLED
from tests.door_matrix.table import HOW, PAGE, make_tables, read_tables, write_tables
from tg_gateway.dialects import Mount
from tg_gateway.mounts import load_mounts

MOUNTS = load_mounts()


def test_the_page_has_every_cell() -> None:
    columns = (*(cell.name for cell in CELLS), *KILLED)
    places = {(door.name, column) for door in DOORS for column in columns}
    assert set(read_tables(PAGE.read_text("utf-8"))) == places, HOW


def test_the_tables_are_as_they_are_written() -> None:
    page = PAGE.read_text("utf-8")
    assert page == write_tables(page, make_tables(read_tables(page))), HOW


def matches(mount: Mount) -> bool:
    """Whether a row asks there."""
    pattern = re.sub(r"\{\w+\}", "[^/]+", mount.path)
    return any(
        re.fullmatch(pattern, door.path.format(flow="f")) and mount.socket is (door.way == "socket") for door in DOORS
    )


WITHOUT_TEXT = frozenset(
    {
        *("/v1/embeddings", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"),
        *("/v1/files", "/v1/files/{file}", "/v1/files/{file}/content"),
        *("/v1/batches", "/v1/batches/{batch}", "/v1/batches/{batch}/cancel"),
        *("/v1/messages/batches", "/v1/messages/batches/{batch}", "/v1/messages/batches/{batch}/results"),
        *("/v1/messages/batches/{batch}/cancel",),
        *("/tokenize", "/detokenize", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
    }
)
"""Paths at which nothing is generated: test_embeddings.py, test_adapters_door.py and
test_batches.py hold what they refuse."""
DIALECTS = dict.fromkeys(mount.dialect for mount in MOUNTS if mount.path not in WITHOUT_TEXT)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda it: type(it).__name__)
def test_every_dialect_has_its_rows(dialect: object) -> None:
    mounts = [mount for mount in MOUNTS if mount.dialect is dialect]
    bodies = [mount for mount in mounts if not mount.socket]
    assert not bodies or any(matches(mount) for mount in bodies)
    sockets = [mount for mount in mounts if mount.socket]
    assert {mount.operation for mount in sockets} == {mount.operation for mount in sockets if matches(mount)}
