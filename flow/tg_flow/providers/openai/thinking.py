"""Deltas of one answer's thinking -> its signature, for servers that want earlier thinking back."""

from typing import Any

from tg_base.llm import write_signature
from tg_flow.providers.openai.request import ThinkingField
from tg_schema import encode


class OpenThinking:
    """The thinking of one answer that is not signed yet.

    Args:
        field: the field in which the server sends thinking and wants it back.
    """

    def __init__(self, field: ThinkingField) -> None:
        self._field = field
        self._open = False
        self._details: list[dict[str, Any]] = []

    def add(self, *, shown: bool, details: tuple[dict[str, Any], ...]) -> None:
        """Add a piece: whether the stream shows its text, and the server's own items, which are merged by index."""
        if self._field != "reasoning_details":
            self._open = self._open or shown
            return
        for item in details:
            self._open = True
            last = self._details[-1] if self._details else {}
            if last.get("index") == item.get("index") and last.get("type") == item.get("type"):
                self._details[-1] = _merge(last, item)
            else:
                self._details.append(item)

    def sign(self) -> str | None:
        """Sign the thinking so far, which ends here. Returns None if there is none."""
        if not self._open:
            return None
        value = encode(self._details).decode() if self._details else ""
        self._open, self._details = False, []
        return write_signature(self._field, value)


def _merge(item: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Texts of an item come in pieces; its other fields are equal in all pieces."""
    joined = {
        name: item[name] + more[name]
        for name in ("text", "summary", "data")
        if isinstance(item.get(name), str) and isinstance(more.get(name), str)
    }
    return {**item, **{name: value for name, value in more.items() if value is not None}, **joined}
