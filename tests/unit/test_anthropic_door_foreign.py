"""What only Anthropic's models know: fields, betas, tools, content; passed on to who announces it, or named."""

from typing import Any

import pytest

from tests.fakes.messages_llm import PLAIN
from tests.unit.message_requests import DOCUMENT, HI, MARK, OURS, SEARCH, WEATHER, read, request
from tg_schema import (
    Message,
)
from tg_schema.conversation import ForeignPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Foreign

NEW = {"context_management": {"edits": [{"type": "x"}]}, "service_tier": "auto", "output_config": {"task": 1}}


def test_unknown_fields_and_betas_go_to_who_announces_them() -> None:
    asked = read(NEW, betas="a-1, b-2,,")
    assert asked.request.foreign == Foreign("anthropic", NEW, betas=("a-1", "b-2"))
    assert asked.ignored == ()


@pytest.mark.parametrize("features", [PLAIN, frozenset()])
def test_elsewhere_they_are_ignored_by_name(features: Any) -> None:
    asked = read(NEW | {"output_config": {"task": 1, "effort": "low"}}, betas="a-1", features=features)
    assert asked.request == request()
    names = {"context_management", "service_tier", "output_config.task", "output_config.effort", "anthropic-beta"}
    assert set(asked.ignored) == names


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [WEATHER | MARK]},
        {"system": [{"type": "text", "text": "s"} | MARK]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "s"} | MARK]}]},
        {"messages": [HI, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "n"} | MARK]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"} | MARK]}]},
    ],
)
def test_cache_marks_are_ignored_where_nobody_says_that_he_knows_them(body: dict[str, Any]) -> None:
    assert read(body).ignored == ()
    assert read(body, features=PLAIN).ignored == ("cache_control",)


def test_tools_of_the_servers_go_to_who_announces_them() -> None:
    asked = read({"tools": [WEATHER, SEARCH, WEATHER | {"name": "b", "defer_loading": True}]}).request
    assert asked.tools == (OURS,)
    assert asked.foreign == Foreign("anthropic", {}, (SEARCH, WEATHER | {"name": "b", "defer_loading": True}))
    with pytest.raises(BadRequest, match=r"tools\.1: the model has no tools of type 'web_search_20250305'"):
        read({"tools": [WEATHER, SEARCH]}, features=PLAIN)
    assert "anthropic_fields" in read({"tools": [SEARCH]}, features=()).request.features


def test_a_field_of_a_tool_that_nobody_knows_is_ignored_by_name() -> None:
    asked = read({"tools": [WEATHER | {"defer_loading": True}]}, features=PLAIN)
    assert (asked.request.tools, asked.ignored) == ((OURS,), ("tools.defer_loading",))


@pytest.mark.parametrize(
    ("choice", "ours"),
    [({"type": "tool", "name": "web_search"}, None), ({"type": "tool", "name": "weather"}, "weather")],
)
def test_a_choice_of_a_foreign_tool_is_foreign(choice: dict[str, str], ours: str | None) -> None:
    asked = read({"tools": [WEATHER, SEARCH], "tool_choice": choice}).request
    assert asked.tool_choice == ours
    assert asked.foreign is not None
    assert asked.foreign.fields == ({} if ours else {"tool_choice": choice})


def test_any_tool_of_foreign_ones_alone_is_a_foreign_choice() -> None:
    asked = read({"tools": [SEARCH], "tool_choice": {"type": "any"}}).request
    assert asked.foreign == Foreign("anthropic", {"tool_choice": {"type": "any"}}, (SEARCH,))
    assert asked.tool_choice is None


@pytest.mark.parametrize(
    ("part", "kind"),
    [(DOCUMENT, "document"), ({"type": "image", "source": {"type": "file", "file_id": "f"}}, r"image \(file\)")],
)
def test_a_foreign_block_is_refused_by_its_name(part: dict[str, Any], kind: str) -> None:
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert read(body).request.messages == (Message("user", (ForeignPart("anthropic", part),)),)
    with pytest.raises(BadRequest, match=f"no content blocks of type '{kind}'"):
        read(body, features=PLAIN)
    assert "anthropic_fields" in read(body, features=()).request.features
