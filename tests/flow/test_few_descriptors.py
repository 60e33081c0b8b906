"""`ulimit -n` -> commands that serve: one that may open too few files ends with a sentence, before it opens any."""

from pathlib import Path

import pytest

from tests.flow.command import SCRIPTS, ran

PICK = """
[[pools]]
servers = ["127.0.0.1:1"]
"""
COMMANDS = [("tg-serve", "--port", "0"), ("tg-serve-model", "--port", "0"), ("tg-pick", "--config", "pick.toml")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
async def test_a_process_that_may_open_too_few_files_says_how_many_it_needs(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "pick.toml"
    config.write_text(PICK, "utf-8")
    name, *words = (str(config) if word == config.name else word for word in command)
    done = await ran("bash", "-c", f'ulimit -n 12; exec "{SCRIPTS}/{name}" "$@"', name, *words)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"{name}: this process may have 12 files open, and needs 64, besides one for each connection: "
        "raise the limit before you start it, as with ulimit -n 1024\n"
    )
