"""Fields of other APIs are told where they belong; what nobody means anything by is ignored."""

import json
from typing import Any

import pytest

from tg_gateway.dialects.native.services import SERVICES
from tg_schema.errors import BadRequest

LEAST: dict[str, dict[str, Any]] = {
    "text-completion": {"prompt": "p"},
    "prompt": {"id": "i"},
    "agent": {"question": "q"},
}


def refused(service: str, **more: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        SERVICES[service].parse(json.dumps(LEAST[service] | more).encode())
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("temperature", "sampling.temperature"),
        ("max_tokens", "sampling.max_tokens"),
        ("max_completion_tokens", "sampling.max_tokens"),
        ("stop", "sampling.stop"),
        ("stop_sequences", "sampling.stop"),
        ("seed", "sampling.seed"),
        ("n", "sampling.n"),
        ("logit_bias", "sampling.logit_bias"),
        ("reasoning_effort", "reasoning.effort"),
        ("history", "messages"),
        ("stream", "streaming"),
        ("format", "response_format"),
        ("system_prompt", "system"),
    ],
)
def test_fields_of_other_apis_are_told_where_they_belong(name: str, place: str) -> None:
    said = refused("text-completion", **{name: None})
    assert f"`{name}`" in said
    assert f"`{place}`" in said


@pytest.mark.parametrize("service", LEAST)
def test_stream_is_streaming_everywhere(service: str) -> None:
    assert "`streaming`" in refused(service, stream=True)


@pytest.mark.parametrize("service", ["prompt", "agent"])
@pytest.mark.parametrize("name", ["temperature", "sampling", "model", "max_tokens"])
def test_what_a_service_does_not_take_is_not_ignored(service: str, name: str) -> None:
    assert "text-completion" in refused(service, **{name: 1})


@pytest.mark.parametrize(
    ("service", "wrong", "right"),
    [
        ("text-completion", "samplng", "sampling"),
        ("prompt", "variable", "variables"),
        ("agent", "histroy", "history"),
    ],
)
def test_a_mistyped_name_is_no_unknown_one(service: str, wrong: str, right: str) -> None:
    assert refused(service, **{wrong: {}}).endswith(f"did you mean `{right}`?")


def test_no_client_sends_the_beginning_of_an_answer() -> None:
    """Only a requestor knows what was sent, and it costs work that no limit of the door counts."""
    assert "leave it out" in refused("text-completion", continuation=["Once"])


def test_what_clients_of_trustgraph_send_is_taken() -> None:
    theirs: dict[str, dict[str, Any]] = {
        "text-completion": {"workspace": "default"},
        "prompt": {"workspace": "default"},
        "agent": {"user": "u", "workspace": "w", "collection": "c", "session_id": "s", "conversation_id": "c"}
        | {"task_type": "t", "framing": "f", "correlation_id": "c", "parent_session_id": "p"}
        | {"subagent_goal": "g", "expected_siblings": 1},
    }
    for service, more in theirs.items():
        SERVICES[service].parse(json.dumps(LEAST[service] | more).encode())


def test_what_nobody_knows_is_ignored() -> None:
    more = {f"x-{number}" * 9: 1 for number in range(2000)} | {"y" * 100_000: 1, "": 2}
    SERVICES["text-completion"].parse(json.dumps(LEAST["text-completion"] | more).encode())
