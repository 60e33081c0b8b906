"""A description refuses what it does not describe: without this, the tests beside this one could not fail."""

from typing import Any

import pytest

from tests.descriptions.description import Description
from tests.descriptions.published import open_responses_description, openai_description
from tests.unit.test_responses_events import LAST, Record, stream, whole

EVENT = {"properties": {"type": {"enum": ["a"]}, "number": {"type": "integer"}}, "required": ["type", "number"]}
DOCUMENT: dict[str, Any] = {
    "components": {
        "schemas": {
            "Event": EVENT,
            "Events": {"anyOf": [{"$ref": "#/components/schemas/Event"}]},
            "Old": {"properties": {"nullable": {"type": "string", "nullable": True}}},
        }
    }
}


def test_what_is_described_differently_is_told() -> None:
    description = Description(DOCUMENT, "/components/schemas/Events")
    description.check_event({"type": "a", "number": 1})
    description.check("Old", {"nullable": None})
    description.check("Old", {"nullable": "x"})
    with pytest.raises(AssertionError, match='number: "1" is not of type "integer"'):
        description.check_event({"type": "a", "number": "1"})
    with pytest.raises(AssertionError, match="no event is described that has the type b"):
        description.check_event({"type": "b"})
    with pytest.raises(AssertionError, match="this is no Old:\nnullable: 1 is not"):
        description.check("Old", {"nullable": 1})


@pytest.mark.descriptions
def test_a_response_that_lacks_a_field() -> None:
    response = whole([Record(response="Hi"), LAST])
    for name in set(response) - {"user"}:
        with pytest.raises(AssertionError, match=f'"{name}" is a required property'):
            open_responses_description().check("ResponseResource", _without(response, name))
    for name in ("id", "object", "output", "tools", "temperature"):
        with pytest.raises(AssertionError, match=f'"{name}" is a required property'):
            openai_description().check("Response", _without(response, name))


@pytest.mark.descriptions
def test_an_event_that_lacks_a_field() -> None:
    for event in stream([Record(response="Hi"), LAST]):
        for name in ("sequence_number", "item_id", "output_index", "response", "item", "delta"):
            if name in event:
                for description in (openai_description(), open_responses_description()):
                    with pytest.raises(AssertionError, match=f'"{name}" is a required property'):
                        description.check_event(_without(event, name))


def _without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in body.items() if each != name}
