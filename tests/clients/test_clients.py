"""Each client against each feature, unmodified, in an environment of its own: as README.md says."""

from pathlib import Path

import pytest

from tests.clients.clients import CLIENTS, Client
from tests.clients.stage import ask
from tests.clients.table import HOW, PAGE, make_lines, read_lines
from tests.page_tables import cells_of

LINES = read_lines(PAGE.read_text("utf-8"))


@pytest.mark.clients
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if not client.large], ids=lambda client: client.name.strip("`")
)
async def test_client(client: Client, tmp_path: Path) -> None:
    told = [line for line in LINES if cells_of(line)[0] == client.name]
    assert make_lines(client, await ask(client, tmp_path)) == told, HOW


def test_the_page_has_every_client_and_no_other() -> None:
    assert list(dict.fromkeys(cells_of(line)[0] for line in LINES)) == [client.name for client in CLIENTS], HOW
