"""README.md and docs/: every command and block of code runs as it is written, and shows what the page says.

A block that cannot run here has a comment above it, `<!-- not run: REASON -->`, or `<!-- not run (COMMAND): REASON -->`
for one of its commands; it is still parsed.
"""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.docs.interpreter import Interpreter
from tests.docs.local_servers import local_servers
from tests.docs.page import PAGES, ROOT, Block, blocks
from tests.docs.scripted_openai import ScriptedOpenAi
from tests.docs.servers import Servers
from tests.docs.shown import is_shown
from tests.docs.socket_talk import talk
from tests.docs.workshop import Workshop
from tests.missing import require_free_port
from tg_base.config import read_config
from tg_picker.extproc.pick_config import read_pick_config

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

REASONS = {
    "it would run itself",
    "needs a broker",
    "needs a cluster",
    "needs a key",
    "needs a model's file",
    "needs a class of yours",
    "needs another machine",
    "needs a program of others",
    "takes minutes",
    "a part of a file",
    "wrong on purpose",
    "an interactive shell's own",
}
"""Every reason that a page may give."""
OTHER_FILES: dict[str, Callable[[Path], object]] = {
    "config.toml": lambda path: tomllib.loads(path.read_text("utf-8")),
    "pick.toml": read_pick_config,
    "pyproject.toml": lambda path: tomllib.loads(path.read_text("utf-8")),
}
"""TOML that is not the configuration of tg-serve, and who reads it."""
UNREADABLE = {"wrong on purpose", "needs a class of yours"}
"""Configurations that are TOML, and that we refuse."""
SERVERS = ("make serve", "tg-serve")
MORE_ATTEMPTS = 20
STREAMED = re.compile(r"\bcurl -\w*N|--json\b")
"""Commands that show each chunk. What the others show comes the first time."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()


@pytest.fixture
async def openai() -> AsyncIterator[ScriptedOpenAi]:
    async with ScriptedOpenAi.running() as server:
        yield server


@pytest.fixture
async def local() -> AsyncIterator[Mapping[str, str]]:
    async with local_servers() as variables:
        yield variables


@pytest.fixture
def workshop(tmp_path: Path, servers: Servers, openai: ScriptedOpenAi, local: Mapping[str, str]) -> Workshop:
    provider = {"OPENAI_API_KEY": openai.key, "OPENAI_BASE_URL": f"{openai.url}/v1", "DEEPSEEK_API_KEY": openai.key}
    return Workshop(tmp_path, servers, {**provider, **local})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_a_page_does_what_it_says(page: Path, workshop: Workshop) -> None:
    interpreter, printed = Interpreter(), ""
    wrong: list[str] = []
    for block in blocks(page):
        place = f"{page.name}, line {block.line}"
        assert set(block.skipped.values()) <= REASONS, place
        if block.reason is None and block.language in {"console", "sh"}:
            wrong += [f"{place}: {found}" async for found in run_shell(block, workshop)]
        elif block.reason is None and block.language == "python":
            printed = await run_python(block, workshop, interpreter, place)
        elif block.file in OTHER_FILES:
            OTHER_FILES[block.file](workshop.write(block.file, block.text))
        elif block.reason is None and block.language == "toml":
            wrong += [f"{place}:\n{found}" async for found in check_config(block, workshop)]
        elif block.reason is None and block.language.startswith("websocket"):
            path = block.language.partition(" ")[2]
            got = workshop.public(await talk(f"http://localhost:{workshop.port}/", block.text, path))
            wrong += [] if is_shown(block.text, got) else [f"{place}:\n{got}"]
        elif block.language == "text" and block.follows and printed:
            wrong += [] if is_shown(block.text, printed) else [f"{place}:\n{printed}"]
        else:
            parse(block, workshop, place)
    assert not wrong, "\n\n".join(wrong)


async def run_shell(block: Block, workshop: Workshop) -> AsyncIterator[str]:
    """Each command whose output is not what is shown, with that output."""
    for written, shown in block.commands:
        command = written.partition("   #")[0].strip()
        if not command or any(command.startswith(skipped) for skipped in block.skipped):
            continue
        if is_server(command):
            code: int | None = 0
            got = await workshop.serve(command)
        else:
            if workshop.port is None:
                require_free_port()  # our commands run a pipeline of their own only if nobody is there
            code, got = await workshop.run(command)
            # Adjacent chunks join on a busy machine: a page's two events may come as one, but not each time.
            for _ in range(MORE_ATTEMPTS if STREAMED.search(command) else 0):
                if not shown or code is None or is_shown(shown, got):
                    break
                code, got = await workshop.run(command)
        if not is_shown(shown, got) if shown else code != 0:
            yield f"{command}\n{brief(got)}"


def brief(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) < 15 else "\n".join([*lines[:5], "[...]", *lines[-9:]])


def is_server(command: str) -> bool:
    words = [word for word in shlex.split(command) if "=" not in word]
    return " ".join(words).startswith(SERVERS) and "--check" not in words


async def run_python(block: Block, workshop: Workshop, interpreter: Interpreter, place: str) -> str:
    if block.file is not None:
        ast.parse(block.text, place)
        workshop.write(block.file, block.text)
        return ""
    return workshop.public(await interpreter.run(workshop.local(block.text), place))


async def check_config(block: Block, workshop: Workshop) -> AsyncIterator[str]:
    """What `tg-serve --check` finds wrong with it."""
    name = block.file or "tokengrid.toml"
    workshop.write(name, block.text)
    code, got = await workshop.run(f"PYTHONPATH=. tg-serve --check --config {name}")
    if code != 0:
        yield got


def parse(block: Block, workshop: Workshop, place: str) -> None:
    """What is not run is at least of its language."""
    match block.language:
        case "python":
            parse_python(block.text, place)
        case "toml":
            tomllib.loads(block.text)
            if block.reason in UNREADABLE:
                workshop.write(block.file or "tokengrid.toml", block.text)
            else:
                read_config(workshop.write("part.toml", block.text))
        case "json":
            json.loads(block.text)
        case "yaml":
            list(yaml.safe_load_all(block.text))
            if block.file is not None:
                workshop.write(block.file, block.text)
        case "text" | "console" | "sh":
            pass
        case other:
            pytest.fail(f"{place}: {other!r} is no language that is run or parsed")


def parse_python(text: str, place: str) -> None:
    """It is a module, or a row of a table."""
    try:
        ast.parse(text, place)
    except SyntaxError:
        ast.parse(f"{{{text}}}", place)


async def test_a_page_sets_nothing_up_through_its_links_into_the_environment(
    workshop: Workshop, tmp_path: Path
) -> None:
    for size in ("demo", "server"):
        (tmp_path / f"requirements-{size}.lock").touch()
    code, printed = await workshop.run("make -n demo serve")
    assert code == 0, printed
    assert "pip install" not in printed


def test_every_page_is_read() -> None:
    assert len(PAGES) > 12
    assert all(page.exists() for page in PAGES)
    assert (ROOT / "README.md") in PAGES


@pytest.mark.parametrize(
    ("shown", "got", "right"),
    [
        ("a\n", "a", True),
        ("a ... c", "a b c", True),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nd", True),
        ("a", "a\nb", False),
        ("a b", "a c", False),
        ('{"id":"b72e/1"}', '{"id":"0123456789abcdef/1"}', True),
        ('{"id":"b72e/1"}', '{"id":"0123456789abcdef/2"}', False),
    ],
)
def test_what_is_shown(shown: str, got: str, right: bool) -> None:
    assert is_shown(shown, got) is right


def test_a_block_that_is_wrong_is_found(workshop: Workshop) -> None:
    with pytest.raises(SyntaxError):
        parse(Block(1, "python", "async with x\n", "", {}, False), workshop, "page")
