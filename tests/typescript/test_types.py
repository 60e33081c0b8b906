"""The types of `@tokengrid/client`: those of the schema, those of the source, and enough for a strict program."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from scripts.typescript import RECORDS, list_errors, write_types
from tests.npm_package import npm_package_or_skip
from tests.typescript.package import CLIENT, install_client, node_or_skip

TYPESCRIPT: Final = "7.0.2"
COMPILE_SECONDS: Final = 100
USE: Final = Path(__file__).with_name("use.ts")
SOURCE: Final = (CLIENT / "tokengrid.js").read_text("utf-8")


def compile_types(*arguments: str | Path) -> None:
    node, folder = npm_package_or_skip("typescript", TYPESCRIPT)
    command = [node, folder / "node_modules" / "typescript" / "bin" / "tsc", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    assert done.returncode == 0, done.stdout


def test_the_records_are_those_of_the_schema() -> None:
    assert RECORDS.read_text("utf-8") == write_types(), "run `python -m scripts.typescript`"


def test_its_version_is_that_of_the_others() -> None:
    package = json.loads((CLIENT / "package.json").read_text("utf-8"))
    assert package["version"] == version("tokengrid-cli")


def test_the_same_errors_are_worth_a_retry() -> None:
    retried = {kind.type for kind in list_errors() if kind.retryable}
    (line,) = (line for line in SOURCE.splitlines() if '"incomplete-stream", "rate-limited"' in line)
    assert {name.strip(' "') for name in line.strip().rstrip(",").split(",")} == retried


@pytest.mark.clients
@pytest.mark.timeout(400)
def test_the_declared_types_are_those_of_the_source(tmp_path: Path) -> None:
    compile_types("-p", CLIENT, "--outDir", tmp_path)
    written = (tmp_path / "tokengrid.d.ts").read_text("utf-8")
    assert written == (CLIENT / "tokengrid.d.ts").read_text("utf-8"), (
        f"run `npx -p typescript@{TYPESCRIPT} tsc -p cli/ts`"
    )


@pytest.mark.clients
@pytest.mark.timeout(400)
def test_a_strict_program_uses_what_is_packed(tmp_path: Path) -> None:
    node_or_skip()
    install_client(tmp_path)
    program = tmp_path / "use.ts"
    program.write_text(USE.read_text("utf-8"), "utf-8")
    options = ("--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom")
    compile_types(*options, program)
    program.write_text(program.read_text("utf-8").replace("model} ${running", "modle} ${running"), "utf-8")
    with pytest.raises(AssertionError, match="modle"):
        compile_types(*options, program)
