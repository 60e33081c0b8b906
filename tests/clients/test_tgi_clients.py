"""TGI's own clients, unmodified, each in an environment of its own, before our door: one process asks everything."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environment import python_of
from tests.clients.program import printed_by
from tests.clients.stage import LOCKED, TOKEN
from tests.fakes.raw_llm import RawLlm
from tests.flow.open_gateway import open_gateway
from tg_schema import Sampling

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

TEXT_GENERATION = ("text-generation==0.7.0", "huggingface_hub==0.36.2", "pydantic==2.14.3", "aiohttp==3.14.5")
HUBS = {"0.36.2": ("huggingface_hub==0.36.2", "aiohttp==3.14.5"), "2.4.0": ("huggingface_hub==2.4.0",)}
"""The last versions of two majors."""
WARNINGS = ("-W", "error", "-W", "ignore::DeprecationWarning")
ASK_SECONDS = 120.0

TEXT = "Hello €"
PIECES = ["Hel", "lo", " ", "", "€"]
IDS = [10, 11, 12, 20, 21]
SPECIAL = "</s>"
DOWN, BUSY, CUT = "the provider is down", "ask later", "the provider's stream was cut"


async def run(python: Path, script: str, llm: RawLlm) -> dict[str, Any]:
    """What the script prints."""
    program = Path(__file__).with_name(script)
    async with open_gateway(LOCKED, instead=llm) as it:
        asking = (python, *WARNINGS, program, it.gateway.url.rstrip("/"), TOKEN)
        read: dict[str, Any] = json.loads(await printed_by(*asking, seconds=ASK_SECONDS))
    return read


def texts(tokens: Sequence[dict[str, Any]]) -> list[tuple[int, str, bool]]:
    return [(token["id"], token["text"], token["special"]) for token in tokens]


def check_details(answer: dict[str, Any]) -> None:
    """Those of a whole answer with everything."""
    details = answer["details"]
    assert answer["generated_text"] == TEXT
    assert (details["finish_reason"], details["generated_tokens"], details["seed"]) == ("eos_token", 6, None)
    wanted = [*zip(IDS, PIECES, [False] * 5, strict=True), (2, SPECIAL, True)]
    assert texts(details["tokens"]) == wanted
    assert all(token["logprob"] < 0 for token in details["tokens"])
    prefill = [(token["id"], token["text"]) for token in details["prefill"]]
    assert prefill == [(1, "<s>"), (30, "say"), (31, " hello")]
    assert [token["text"] for token in details["top_tokens"][0]] == ["Hel0", "Hel1"]


def check_others(stopped: dict[str, Any], best: dict[str, Any]) -> None:
    """An answer with a stop string, and the best of two."""
    assert (stopped["generated_text"], stopped["details"]["finish_reason"]) == ("Hello", "stop_sequence")
    (other,) = best["details"]["best_of_sequences"]
    assert (best["generated_text"], best["details"]["finish_reason"]) == ("Hel", "length")
    assert (other["generated_text"], other["prefill"], other["generated_tokens"]) == ("Hel", [], 1)
    assert best["details"]["tokens"][0]["logprob"] > other["tokens"][0]["logprob"]


def check_events(events: Sequence[dict[str, Any]]) -> None:
    """A stream with its details."""
    assert texts([event["token"] for event in events[:-1]]) == [*zip(IDS, PIECES, [False] * 5, strict=True)]
    last = events[-1]
    assert texts([last["token"]]) == [(2, SPECIAL, True)]
    assert last["generated_text"] == TEXT
    assert {event["generated_text"] for event in events[:-1]} == {None}
    details = last["details"]
    assert (details["finish_reason"], details["generated_tokens"], details["seed"]) == ("eos_token", 6, 7)


async def test_text_generation() -> None:
    llm = RawLlm()
    read = await run(python_of("text-generation-0.7.0", TEXT_GENERATION), "ask_by_text_generation.py", llm)
    assert (read["text"], read["full"], read["chat"]) == (TEXT, "say helloHello", "Hello")
    check_details(read["details"])
    check_others(read["stopped"], read["best"])
    check_events(read["stream"])
    assert read["async"] == [TEXT, *PIECES, SPECIAL]
    assert read["errors"] == {
        "down": [["GenerationError", DOWN]] * 2,
        "busy": [["OverloadedError", BUSY]] * 2,
        "cut": [["IncompleteGenerationError", CUT]] * 2,
    }
    assert [kind for kind, _ in read["bad"]] == ["ValidationError"] * 2
    assert [kind for kind, _ in read["stranger"]] == ["UnknownError"] * 2
    assert llm.requests[0].sampling == Sampling(temperature=0, max_tokens=20, logprobs=0, end_token=True)
    assert all(request.raw for request in llm.requests if request.prompt == "say hello")


@pytest.mark.parametrize("version", HUBS)
async def test_huggingface_hub(version: str) -> None:
    llm = RawLlm()
    read = await run(python_of(f"hub-{version}", HUBS[version]), "ask_by_hub.py", llm)
    assert (read["text"], read["full"], read["grammar"]) == (TEXT, "say helloHello", TEXT)
    check_details(read["details"])
    check_others(read["stopped"], read["best"])
    assert read["stream"] == [*PIECES, SPECIAL]
    check_events(read["events"])
    assert [event["index"] for event in read["events"]] == [1, 2, 3, 4, 5, 6]
    assert read["events"][-1]["details"]["input_length"] == 2
    assert read["async"] == [TEXT, *PIECES, SPECIAL]
    assert (read["chat"], "".join(read["chat stream"])) == ("Hello", "Hello")
    assert read["chat schema"][0] in {"BadRequestError", "HfHubHTTPError"}
    assert (read["info"], read["health"]) == ("counting", True)
    assert read["errors"] == {
        "down": [["GenerationError", DOWN]] * 2,
        "busy": [["OverloadedError", BUSY]] * 2,
        "cut": [["IncompleteGenerationError", CUT]] * 2,
    }
    assert [kind for kind, _ in read["bad"]] == ["ValidationError"] * 2
    assert [kind for kind, _ in read["stranger"]] == ["UnknownError"] * 2
    schemas = [request.schema for request in llm.requests if request.schema is not None]
    assert schemas == [{"type": "object", "properties": {"a": {"type": "integer"}}}] * 2
    assert [request.regex for request in llm.requests if request.regex] == ["Hel+o €", "Hello"]
    assert [request.tool_choice for request in llm.requests if request.tools] == ["f"]
