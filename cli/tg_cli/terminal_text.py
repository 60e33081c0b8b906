"""Text of others -> terminal: without what a terminal would obey."""

_C0, _DEL_AND_C1 = range(32), range(127, 160)
_REMOVED = {code: None for code in (*_C0, *_DEL_AND_C1) if chr(code) not in "\t\n"}
_ESCAPED = {code: f"\\u{code:04x}" for code in _DEL_AND_C1}


def remove_controls(text: str) -> str:
    """Text that does nothing to a terminal but to be shown."""
    return text.translate(_REMOVED)


def escape_controls(line: bytes) -> bytes:
    """The same JSON, with the control characters escaped that may stand in it as they are: those from 127 to 159."""
    return line.decode().translate(_ESCAPED).encode()
