"""Text of others -> terminal: without the control characters that a terminal would obey."""

_C0, _DEL_AND_C1 = range(32), range(127, 160)
_REMOVED = {code: None for code in (*_C0, *_DEL_AND_C1) if chr(code) not in "\t\n"}
_ESCAPED = {code: f"\\u{code:04x}" for code in _DEL_AND_C1}


def remove_controls(text: str) -> str:
    """The text without control characters, safe to show on a terminal."""
    return text.translate(_REMOVED)


def escape_controls(line: bytes) -> bytes:
    """The same JSON with characters 127 to 159 escaped: the control characters that JSON allows unescaped."""
    return line.decode().translate(_ESCAPED).encode()
