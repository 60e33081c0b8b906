"""`/openapi.json` before the tools of others, unmodified: it is valid, and what is made of it meets no 5xx.

Schemathesis holds each answer to the document: its status, its content type, and its body or each of its events.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.environment import python_of
from tests.fakes.willing_llm import WillingLlm
from tests.openapi.described_gateway import MODEL, described_gateway

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

TOOLS: Final = (
    *("schemathesis==4.32.5", "hypothesis==6.170.15", "jsonschema_rs==0.60.3"),
    "openapi-spec-validator==0.9.0",
)
CHECKS: Final = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
RUN_SECONDS: Final = 300.0
EXAMPLES: Final = 1
"""Random requests for each operation, right and wrong, beside the right ones that cover its schema."""


async def run(python: Path, *arguments: str, folder: Path) -> str:
    """What a tool prints; it must find nothing."""
    hooks = {"PYTHONPATH": str(Path(__file__).parent), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"}
    process = await asyncio.create_subprocess_exec(
        python, "-m", *arguments, cwd=folder, env={**os.environ, **hooks},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(process.communicate(), RUN_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()[-10_000:]
    return out.decode()


def list_repeated(document: dict[str, Any]) -> list[str]:
    """The operations whose bodies are of the types of earlier ones: what covers a type is sent once."""
    seen: set[str] = set()
    repeated = []
    for operation in (operation for item in document["paths"].values() for operation in item.values()):
        types = set(re.findall(r"#/components/schemas/[^\"]+", json.dumps(operation.get("requestBody", {}))))
        if types and types <= seen:
            repeated.append(operation["operationId"])
        seen |= types
    return repeated


def list_absent(document: dict[str, Any]) -> list[str]:
    """The operations that are always answered by 501: they are no defects."""
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    return [each["operationId"] for each in operations if not {"200", "101"} & set(each["responses"])]


def exclude(operations: Iterable[str]) -> list[str]:
    return [word for name in sorted(operations) for word in ("--exclude-operation-id", name)]


async def test_no_request_meets_a_5xx_or_anything_that_is_not_described(tmp_path: Path) -> None:
    python = await asyncio.to_thread(python_of, "schemathesis-4.32.5", TOOLS)
    async with described_gateway(WillingLlm(MODEL)) as http:
        async with http.get("openapi.json") as response:
            document = await response.json()
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        assert "OK" in await run(python, "openapi_spec_validator", "openapi.json", folder=tmp_path)
        command = ("schemathesis.cli", "run", "openapi.json", "--url", str(http._base_url), "--checks", CHECKS)
        options = ("--generation-deterministic", "--no-shrink", "--no-color", "--warnings", "off")
        absent, repeated = list_absent(document), list_repeated(document)
        covering = ("--phases", "coverage", "-m", "positive", *exclude({*absent, *repeated}))
        fuzzing = ("--phases", "fuzzing", "-n", str(EXAMPLES), *exclude(absent))
        for phase in (covering, fuzzing):
            assert "No issues found" in await run(python, *command, *options, *phase, folder=tmp_path)
