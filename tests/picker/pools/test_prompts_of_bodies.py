"""The prompt of a body: the same conversation in any API is the same text, and whatever comes is read."""

import json
import sys
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tg_picker.core import fingerprint_text, fingerprint_tokens
from tg_picker.pools import MAX_PREFIX_CHARACTERS, Prompt, PromptFields, read_prompt
from tg_picker.pools.prompt import MAX_PARSED_BYTES

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
DATA = "iVBORw0KGgo="
ASKED = "What is this, and is it warm there? \u00fc"

CHAT: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}
    ],
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ASKED},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{ "city":"Oslo"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "Rain."},
        {"role": "user", "content": "And now?"},
    ],
}
MESSAGES: dict[str, Any] = {
    "tools": [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}],
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ASKED},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "Rain."}]},
                {"type": "text", "text": "And now?"},
            ],
        },
    ],
}
RESPONSES: dict[str, Any] = {
    "tools": [{"type": "function", "name": "weather", "description": "The weather.", "parameters": SCHEMA}],
    "instructions": "Be brief.",
    "input": [
        {"role": "system", "content": "Be kind."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": ASKED},
                {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
            ],
        },
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "1", "output": "Rain."},
        {"role": "user", "content": "And now?"},
    ],
}
TEXT = (
    f"\x1etools\x1fweather\x1fThe weather.\x1f{json.dumps(SCHEMA, separators=(',', ':'))}"
    f"\x1esystem\x1fBe brief.\n\nBe kind.\x1euser\x1f{ASKED}\x1ddata:image/png;base64,{DATA}"
    '\x1eassistant\x1fI look.\x1ecall\x1fweather\x1f{"city":"Oslo"}\x1etool\x1fRain.\x1euser\x1fAnd now?'
)


def read(body: object, **written: Any) -> Prompt:
    return read_prompt(msgspec.json.decode(json.dumps(body, **written).encode(), type=PromptFields))


@pytest.mark.parametrize("body", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
@pytest.mark.parametrize("written", [{}, {"indent": 2}, {"ensure_ascii": False, "separators": (",", ":")}])
def test_a_conversation_is_the_same_text_in_any_api(body: dict[str, Any], written: dict[str, Any]) -> None:
    assert read(body, **written) == Prompt(TEXT, len(TEXT))


@pytest.mark.parametrize("body", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
def test_a_turn_that_cannot_be_read_does_not_change_those_before(body: dict[str, Any]) -> None:
    """No UTF-8: the list cannot be parsed as a whole, so it is read turn by turn."""
    field = "messages" if "messages" in body else "input"
    text = json.dumps({**body, field: [*body[field], {"role": "user", "content": "?"}]}).encode()
    found = read_prompt(msgspec.json.decode(text.replace(b'"?"', b'"\xff"'), type=PromptFields))
    assert found.text.startswith(TEXT + "\x1e")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"input": "Hi"}, "\x1euser\x1fHi"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "\x1euser\x1fHi"),
        ({"prompt": "Hi"}, "\x1eprompt\x1fHi"),
        ({"prompt": [1, 2]}, ""),
        ({"prompt": [1, -2]}, "\x1eprompt\x1f[1,-2]"),
        ({"prompt": [[1, 2]]}, "\x1eprompt\x1f[[1,2]]"),
        ({"prompt": ["a", "b"]}, '\x1eprompt\x1f["a","b"]'),
        # A later text of the system is read where it stands.
        (
            {"messages": [{"role": "user", "content": "system"}, {"role": "system", "content": "b"}]},
            "\x1euser\x1fsystem\x1esystem\x1fb",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio", "id": 1}]}]},
            '\x1euser\x1f\x1d{"type":"audio","id":1}',
        ),
        ({"tools": [{"type": "web_search"}]}, '\x1etools\x1f{"type":"web_search"}'),
        ({"tools": None, "messages": 5, "system": 7}, None),
    ],
)
def test_what_is_read_of_a_body(body: dict[str, Any], text: str | None) -> None:
    found = read(body)
    assert text is None or found.text == text


def test_a_prompt_in_token_ids_is_found_by_them_and_kept_apart_by_its_salt() -> None:
    ids = [*range(200), 2**32 - 1]
    assert read({"prompt": ids, "cache_salt": 5}) == Prompt("", 4 * 201, tuple(ids))
    assert read({"prompt": ids}).tokens == 201
    plain, mine = read({"prompt": ids}), read({"prompt": ids, "cache_salt": "mine"})
    assert plain.fingerprint("model", None) == plain.fingerprint("other", None) == fingerprint_tokens(ids)
    assert mine.fingerprint("model", "x") == fingerprint_tokens(ids, "x\0mine")
    assert len(read({"prompt": [7] * 140_000}).fingerprint("", None).blocks) == 2048


@pytest.mark.parametrize("body", [CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, {"prompt": "Hi"}])
def test_a_text_is_kept_apart_by_its_salt(body: dict[str, Any]) -> None:
    plain = read(body)
    assert read({**body, "cache_salt": 5}) == read({**body, "cache_salt": None}) == plain
    long = msgspec.structs.replace(plain, text="x" * 256)
    mine = msgspec.structs.replace(read({**body, "cache_salt": "mine"}), text=long.text)
    assert mine.salt == "mine"
    assert mine.fingerprint("m", None) == fingerprint_text(long.text, "m\0mine") != long.fingerprint("m", None)
    assert mine.fingerprint("m", "x") == fingerprint_text(long.text, "x\0mine")


def test_of_a_long_prompt_the_beginning_is_read() -> None:
    turn = {"role": "user", "content": "x" * MAX_PREFIX_CHARACTERS}
    found = read({"messages": [turn, turn, turn]})
    assert len(found.text) == MAX_PREFIX_CHARACTERS
    assert 0 < found.characters - 3 * MAX_PREFIX_CHARACTERS < 100


@pytest.mark.parametrize("turns", ["0," * 2_000_000, "{}," * 140_000])
def test_a_body_of_a_million_values_is_not_parsed(turns: str) -> None:
    """To make an object of each would hold the event loop for a minute, and take gigabytes."""
    fields = msgspec.json.decode(f'{{"messages": [{turns}0]}}', type=PromptFields)
    calls = count()
    sys.setprofile(lambda frame, event, _: next(calls) if event == "call" else None)
    try:
        found = read_prompt(fields)
    finally:
        sys.setprofile(None)
    assert next(calls) < 500_000
    assert found.text


@pytest.mark.parametrize("size", [2 * MAX_PARSED_BYTES, MAX_PARSED_BYTES // 2])
def test_a_large_turn_counts_whole(size: int) -> None:
    found = read({"messages": [{"role": "user", "content": "x" * size}, {"role": "user", "content": "y"}]})
    assert len(found.text) == MAX_PREFIX_CHARACTERS
    assert abs(found.characters - size) < 200


NESTED = "[" * 600 + "]" * 600
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "type", "content", "text", "tool_calls", "function", "name"]), inner)
        | st.fixed_dictionaries({"type": st.sampled_from(["tool_use", "tool_result", "function_call", "image"])})
    ),
    max_leaves=12,
)


@example({"messages": [{"role": "user", "content": [[[]]]}], "tools": [{"function": []}]})
@example({"system": {"role": [], "type": []}, "messages": {"role": None, "type": []}})
@given(st.dictionaries(st.sampled_from(["tools", "system", "instructions", "messages", "input", "prompt"]), JSON))
def test_any_shape_is_read(body: dict[str, Any]) -> None:
    found = read(body)
    assert found.characters == (len(found.text) if found.ids is None else 4 * len(found.ids))


@pytest.mark.parametrize("field", ["messages", "system"])
@pytest.mark.parametrize("levels", [3, 480])
def test_results_within_results_are_read_as_they_are(field: str, levels: int) -> None:
    begin = '{"type":"tool_result","content":'
    result = begin * levels + '"Rain."' + "}" * levels
    value = result if field == "system" else '[{"role":"user","content":' + result + "}]"
    body = f'{{"{field}": {value}}}'
    found = read_prompt(msgspec.json.decode(body, type=PromptFields))
    assert found.text.endswith(begin * (levels - 1) + '"Rain."' + "}" * (levels - 1))


def test_what_can_be_parsed_and_not_be_written_again_is_read() -> None:
    """Near the interpreter's own limit, wherever the stack stands when it is called."""
    for levels in range(500, 1_000):
        text = f'{{"messages": [{"[" * levels}{"]" * levels}]}}'
        try:
            fields = msgspec.json.decode(text, type=PromptFields)
        except RecursionError:
            break
        assert "[" * levels in read_prompt(fields).text


@pytest.mark.parametrize("field", ["tools", "system", "messages", "input", "prompt"])
def test_what_is_nested_too_deep_is_read_as_it_is(field: str) -> None:
    fields = msgspec.json.decode(f'{{"{field}": [{NESTED}]}}', type=PromptFields)
    assert NESTED in read_prompt(fields).text
