"""`/openapi.json`: every mount is in it, its schemas are right, and its examples are answered as it says."""

import json
import re
from types import MappingProxyType

import jsonschema_rs
import pytest
from aiohttp import ClientSession

from tests.fakes.parley import MOUNTS as PARLEY_MOUNTS
from tests.fakes.parley import Parley
from tests.fakes.willing_llm import WillingLlm
from tests.flow.test_gateway_auth import LOCKED
from tests.llama.demo_llm import TRAINED, opened
from tests.openapi.described_gateway import MODEL, ON_ANY_PORT, described_gateway
from tests.openapi.document import DOCUMENT, JSON, MOUNTS, OPERATIONS, Operation
from tg_base.config import GatewayConfig
from tg_doors.lmtp.conversation import LmtpConversation
from tg_gateway.dialects import Description, Mount
from tg_gateway.openapi import list_rows, make_document

UNDESCRIBED: frozenset[tuple[str, str]] = frozenset()
"""Methods and paths that may be missing in the document: of sockets alone."""
OWN_PATHS = {"/health", "/ready", "/metrics", "/instances", "/openapi.json", "/docs"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of JSON Schema that OpenAPI 3.1 has."""


def test_every_mount_is_described() -> None:
    missing = {(mount.method, mount.path) for mount in MOUNTS if not mount.dialect.describe(mount.operation)}
    assert missing <= UNDESCRIBED, "give the dialect `descriptions`: docs/adding-a-dialect.md says how"
    assert {mount.path for mount in MOUNTS} - {path for _, path in UNDESCRIBED} == set(DOCUMENT["paths"])


def test_the_messages_of_a_socket_are_described() -> None:
    messages = DOCUMENT["paths"]["/lmtp"]["get"]["x-messages"]
    schemas = DOCUMENT["components"]["schemas"]
    told = {name: schemas[schema["$ref"].rpartition("/")[2]] for name, schema in messages.items()}
    assert told.keys() == LmtpConversation.BODIES.keys()
    asked = {"stream_id": 1, "model": MODEL, "prompt": [591], "logit_bias": {"5": -100}}
    generate = jsonschema_rs.validator_for(told["GENERATE"] | {"components": DOCUMENT["components"]})
    for mask, valid in (({"5": -100}, True), ("AACAPw==", True), (None, True), ({"5": 101}, False), ([1], False)):
        assert generate.is_valid(asked | {"logit_bias": mask}) is valid


def test_a_dialect_without_descriptions_is_left_out() -> None:
    document = make_document(list_rows((*MOUNTS, *PARLEY_MOUNTS)))
    assert set(document["paths"]) == set(DOCUMENT["paths"])


class Absent(Parley):
    descriptions = MappingProxyType(
        {"pull": Description(group="Parley", summary="Pull", failure=dict[str, str], statuses=(501,))}
    )


def test_what_is_never_answered_by_200_does_not_say_so() -> None:
    document = make_document(list_rows([Mount("POST", "/parley/pull", Absent(), "pull")]))
    responses = document["paths"]["/parley/pull"]["post"]["responses"]
    assert ("200" in responses, "501" in responses, "401" in responses) == (False, True, True)


def test_schemas_are_schemas_and_all_references_lead_somewhere() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema | {"$schema": DIALECT})
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert referred <= set(DOCUMENT["components"]["schemas"])
    names = [operation.described["operationId"] for operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.described["operationId"])
def test_examples_are_of_their_schemas(operation: Operation) -> None:
    if "requestBody" in operation.described:
        assert operation.examples, "an operation with a body shows one"
    for name, example in operation.examples.items():
        place = ("requestBody", "content", JSON, "schema")
        assert operation.find_errors(example, *place) == [], name
        assert example.get("model", MODEL) == MODEL
    if "requestBody" in operation.described:
        assert operation.find_errors([], *place)


@pytest.mark.parametrize(("attempts", "wrong"), [(1, False), (10, False), (0, True), (11, True), ("2", True)])
def test_the_schema_of_a_response_says_how_often_it_may_be_asked(attempts: object, wrong: bool) -> None:
    asking = next(each for each in OPERATIONS if (each.method, each.path) == ("POST", "v1/responses"))
    body = {"input": "x", "background": True, "service_tier": "flex", "max_attempts": attempts}
    assert bool(asking.find_errors(body, "requestBody", "content", JSON, "schema")) == wrong
    assert f"without it {GatewayConfig().default_max_attempts} times" in json.dumps(DOCUMENT)


@pytest.mark.model
@pytest.mark.timeout(240)
async def test_examples_are_answered() -> None:
    wrong = []
    async with opened(adapter_folder=str(TRAINED)) as llm, described_gateway(llm) as http:
        for operation in OPERATIONS:
            for name, example in operation.examples.items():
                if said := await find_fault(http, operation, example):
                    wrong.append((operation.method, operation.path, name, said))
    assert not wrong


async def find_fault(http: ClientSession, operation: Operation, example: dict[str, object]) -> str:
    """What is wrong with the answer to an example; "" = nothing."""
    async with http.request(operation.method, operation.path, json=example) as response:
        body = (await response.read()).decode("utf-8", "replace")
        media = response.content_type
    place = ("responses", "200", "content", media, "schema")
    if response.status != 200 or media not in operation.described["responses"]["200"]["content"]:
        return f"{response.status} {media} {body[:500]}"
    described = operation.described["responses"]["200"]["content"][media]
    if "x-itemSchema" in described:
        read, place = [json.loads(line) for line in body.splitlines()], (*place[:-1], "x-itemSchema")
    elif "schema" not in described:
        return ""
    else:
        read = [json.loads(body)] if media == JSON else [read_event(event) for event in body.split("\n\n") if event]
    return "; ".join(error for each in read for error in operation.find_errors(each, *place))[:500]


def read_event(event: str) -> dict[str, str]:
    fields = dict(line.split(": ", 1) for line in event.split("\n"))
    return {name: value for name, value in fields.items() if name in {"data", "event"}}


async def test_a_body_without_a_required_field_is_refused() -> None:
    taken = []
    async with described_gateway(WillingLlm(MODEL)) as http:
        for operation in OPERATIONS:
            if "requestBody" not in operation.described:
                continue
            schema = operation.described["requestBody"]["content"][JSON]["schema"]
            required = schema["allOf"][1]["required"] if "allOf" in schema else []
            for name in required:
                for example in operation.examples.values():
                    body = {key: value for key, value in example.items() if key != name}
                    async with http.request(operation.method, operation.path, json=body) as response:
                        if response.status < 400 or str(response.status) not in operation.described["responses"]:
                            taken.append((operation.path, name, response.status))
    assert not taken


async def test_the_gateways_own_paths_are_described_too() -> None:
    async with described_gateway(WillingLlm(MODEL)) as http:
        async with http.get("openapi.json") as response:
            document = await response.json()
        assert response.headers["Content-Type"] == JSON
        assert set(document["paths"]) == set(DOCUMENT["paths"]) | OWN_PATHS
        for path in OWN_PATHS:
            described = document["paths"][path]["get"]["responses"]["200"]["content"]
            async with http.get(path) as response:
                assert (response.status, response.content_type in described) == (200, True), path


async def test_nobody_has_to_show_a_key_for_the_documentation() -> None:
    async with described_gateway(WillingLlm(MODEL), LOCKED) as http:
        for path in ("docs", "docs/page.js", "docs/page.css", "openapi.json"):
            async with http.get(path) as response:
                assert response.status == 200, path
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
                assert response.headers["X-Content-Type-Options"] == "nosniff"
        async with http.get("docs/", allow_redirects=False) as response:
            # Also behind a proxy that adds a prefix.
            assert (response.status, response.headers["Location"]) == (308, "../docs")
        async with http.get("docs/") as response:
            assert (response.status, response.url.path) == (200, "/docs")
        for path in ("metrics", "instances"):
            async with http.get(path, headers={"Accept": "text/html"}) as response:
                assert response.status == 401, path


async def test_the_documentation_can_be_switched_off() -> None:
    config = GatewayConfig(port=0, drain=ON_ANY_PORT.drain, docs=False)
    async with described_gateway(WillingLlm(MODEL), config) as http:
        for path in ("docs", "docs/", "docs/page.js", "openapi.json"):
            async with http.get(path) as response:
                assert response.status == 404, path
