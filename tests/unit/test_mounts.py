"""The table of mounts: rows of all doors that are installed, and what is said of what does not go together."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import parley
from tests.installed_package import install_distribution, install_package
from tg_gateway.dialects import Call, Catalogue, Mount
from tg_gateway.dialects.native import NATIVE
from tg_gateway.dialects.openai.tokens import TOKENS
from tg_gateway.http.page import PAGES, find_pages
from tg_gateway.mounts import DOORS, join_doors
from tg_schema.errors import Unavailable

SAY = (Mount("POST", "/talk", parley.PARLEY, "talk", key="say"),)
TOKENIZE = (Mount("POST", "/talk", TOKENS, "tokenize", large=True),)
HEADED = (Mount("POST", "/talk", TOKENS, "detokenize", header="X-Ids"),)
OPEN_SAY = (replace(SAY[0], keyless=True),)
OPEN = (Mount("POST", "/talk", TOKENS, "tokenize", keyless=True),)
HEAD = (Mount("POST", "/talk", NATIVE, "unknown"),)
SOCKET = (Mount("POST", "/talk", TOKENS, "socket", socket=True),)
TWICE = SAY + SAY
A_LIST = [*SAY]
HERE = __name__


def join(folder: Path, *values: str) -> tuple[Mount, ...]:
    """The rows of doors "a", "b" ... of the distributions "of-a", "of-b" ..., in the reverse order."""
    names = "abc"[: len(values)]
    found = [
        install_distribution(folder, f"of-{name}", f"[{DOORS}]\n{name} = {value}\n")
        for name, value in zip(names, values, strict=True)
    ]
    return join_doors(point for each in reversed(found) for point in each.entry_points)


def operation_for(mount: Mount, body: bytes) -> str:
    call = Call(mount.operation, Catalogue((), lambda _: [], {}), {}, {}, {}, "r")
    call.body = body
    mount.dialect.refuse(Unavailable("no"), 503, call)
    return call.operation


def test_doors_of_one_path_are_told_by_a_key_or_a_header(tmp_path: Path) -> None:
    by_key, by_header = join(tmp_path, f"{HERE}:SAY", f"{HERE}:TOKENIZE", f"{HERE}:HEADED")
    assert by_header == replace(HEADED[0], door="c")
    assert (by_key.path, by_key.key, by_key.large) == ("/talk", "", True)
    assert [operation_for(by_key, body) for body in (b'{"say": 1}', b'{"prompt": 1}', b"{")] == [
        "talk",
        "tokenize",
        "tokenize",
    ]


def test_a_path_that_doors_share_needs_a_key_unless_none_of_them_does(tmp_path: Path) -> None:
    (mixed,) = join(tmp_path, f"{HERE}:SAY", f"{HERE}:OPEN")
    (alike,) = join(tmp_path, f"{HERE}:OPEN_SAY", f"{HERE}:OPEN")
    assert (mixed.keyless, alike.keyless) == (False, True)


def test_a_key_alone_on_its_path_needs_no_choice(tmp_path: Path) -> None:
    assert join(tmp_path, f"{HERE}:SAY") == (replace(SAY[0], door="a"),)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            [f"{HERE}:SAY", f"{HERE}:TWICE"],
            'the door "a" of of-a and the door "b" of of-b both answer POST /talk: uninstall one, or give the rows',
        ),
        ([f"{HERE}:TOKENIZE", f"{HERE}:TOKENIZE"], 'the door "a" of of-a and the door "b" of of-b both answer'),
        ([f"{HERE}:SAY", f"{HERE}:HEAD"], 'the door "b" of of-b shares POST /talk with another door.'),
        ([f"{HERE}:SAY", f"{HERE}:SOCKET"], 'the door "b" of of-b shares POST /talk with another door.'),
        (["tests.nowhere:MOUNTS"], 'the door "a" of of-a cannot be loaded: mend or uninstall it'),
        ([f"{HERE}:NAMELESS"], 'the door "a" of of-a cannot be loaded'),
        ([f"{HERE}:A_LIST"], 'the door "a" of of-a is no tuple of `Mount`'),
        ([f"{HERE}:HERE"], 'the door "a" of of-a is no tuple of `Mount`'),
    ],
)
def test_what_does_not_go_together_is_a_sentence(tmp_path: Path, values: list[str], says: str) -> None:
    with pytest.raises(Unavailable, match=re.escape(says)):
        join(tmp_path, *values)


def test_no_door_at_all_is_a_sentence() -> None:
    with pytest.raises(Unavailable, match="no door is installed"):
        join_doors(())


def test_a_page_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path, monkeypatch, "of-a", f"[{PAGES}]\n/a = tests.nowhere:Page\n")
    with pytest.raises(Unavailable, match='the page "/a" of of-a cannot be loaded: mend or uninstall it'):
        find_pages()
