"""A line that was typed -> a prompt and its parameters: `Hello there temperature=1.2`."""

import re
from typing import Any

import msgspec

_PARAMETER = re.compile(r"([A-Za-z_]\w*)=(\S+)")


def parse_line(line: str) -> tuple[str | list[int], dict[str, Any]]:
    """The prompt, and the parameters behind it: words such as `name=value`, the value in JSON or else a text.

    A prompt that is a JSON list of whole numbers is token ids.
    """
    words = line.strip().split(" ")
    parameters: dict[str, Any] = {}
    while words and (found := _PARAMETER.fullmatch(words[-1])):
        # From the last word to the first, so that the last of two with one name wins.
        parameters.setdefault(found[1], _read_value(found[2]))
        words.pop()
    prompt = " ".join(words)
    try:
        return msgspec.json.decode(prompt, type=list[int]), parameters
    except msgspec.DecodeError:
        return prompt, parameters


def _read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
