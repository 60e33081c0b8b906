"""Items of `input` -> turns of the conversation.

The API has an item for each thing that the assistant did; a turn of ours has all that it did before somebody else
spoke. So the assistant's items are gathered until another one's item comes.
"""

from collections.abc import Sequence
from typing import Final, cast, get_args

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat import read_image
from tg_gateway.dialects.responses import request_body
from tg_gateway.dialects.responses.encrypted_content import SealedReasoning, SealedSummary, unseal
from tg_gateway.dialects.responses.request_body import ContentPart, InputItem
from tg_schema import ImagePart, Message, TextPart, ToolCall
from tg_schema.conversation import Part, ReasoningPart, Role

ROLES: Final = tuple(role for role in get_args(Role) if role != "tool")
ITEM_TYPES: Final = ("message", "function_call", "function_call_output", "reasoning", "compaction")
PART_TYPES: Final = ("input_text", "output_text", "input_image", "refusal")
_SUMMARY: Final = "The conversation until now, in summary:\n\n{}"
MAX_SHOWN_CHARACTERS = 64
"""The most characters of a client's word that an error repeats."""


def read_items(items: Sequence[InputItem], kept: int = 0) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The turns that the items make up, and the places of items that no provider here can read.

    Args:
        items: the items of the whole conversation.
        kept: how many of them come from kept responses; errors count the request's own items from 0.

    Raises:
        InvalidParameter: an item is of a kind that this door does not know, or lacks something.
    """
    reader = _ItemReader()
    for number, item in enumerate(items):
        reader.read(item, f"input[{number - kept}]")
    reader.end_turn()
    return tuple(reader.turns), tuple(reader.ignored)


def read_parts(content: str | Sequence[ContentPart], place: str) -> str | tuple[TextPart | ImagePart, ...]:
    """The content of a turn; a single text is no part.

    Raises:
        InvalidParameter: a part is neither text nor an image that can be passed on.
    """
    if isinstance(content, str):
        return content
    parts = tuple(_read_part(part, f"{place}[{number}]") for number, part in enumerate(content))
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts


class _ItemReader:
    """Gathers the assistant's items into turns."""

    def __init__(self) -> None:
        self.turns: list[Message] = []
        self.ignored: list[str] = []
        self._parts: list[Part] = []
        self._calls: list[InputItem] = []
        self._call_ids: set[str] = set()
        self._signatures: dict[str, str] = {}

    def read(self, item: InputItem, place: str) -> None:
        match item.type:
            case None | "message":
                self._read_message(item, place)
            case "function_call":
                self._read_call(item, place)
            case "function_call_output":
                self._read_output(item, place)
            case "reasoning":
                self._read_reasoning(item, place)
            case "compaction":
                self._read_compaction(item, place)
            case request_body.REFERENCE:
                raise InvalidParameter("no item of this id is kept here: send the item itself", f"{place}.id")
            case other:
                raise InvalidParameter(
                    f"no model here takes items of the type {other[:MAX_SHOWN_CHARACTERS]!r}; "
                    f"send one of: {', '.join(ITEM_TYPES)}",
                    f"{place}.type",
                    "unsupported_value",
                )

    def end_turn(self) -> None:
        """The assistant's turn is over."""
        if self._parts or self._calls:
            first = self._parts[0] if len(self._parts) == 1 else None
            content = first.text if isinstance(first, TextPart) else tuple(self._parts)
            calls = tuple(self._make_call(call) for call in self._calls)
            self.turns.append(Message("assistant", content, tool_calls=calls))
        self._parts, self._calls = [], []

    def _read_message(self, item: InputItem, place: str) -> None:
        if item.role not in ROLES:
            raise InvalidParameter(f"the role must be one of: {', '.join(ROLES)}", f"{place}.role", "invalid_value")
        if item.content is None:
            raise InvalidParameter("the message has no content", f"{place}.content", "missing_required_parameter")
        content = read_parts(item.content, f"{place}.content")
        if item.role != "assistant":
            self.end_turn()
            self.turns.append(Message(cast("Role", item.role), content))
            return
        if self._parts and isinstance(self._parts[-1], TextPart) and not self._calls:
            # Two messages in a row: in one turn their texts would run into each other.
            self.end_turn()
        self._parts += (TextPart(content),) if isinstance(content, str) else content

    def _read_call(self, item: InputItem, place: str) -> None:
        for name in ("call_id", "name"):
            if not getattr(item, name):
                raise InvalidParameter(f"the call has no {name}", f"{place}.{name}", "missing_required_parameter")
        self._calls.append(item)
        self._call_ids.add(item.call_id or "")

    def _read_output(self, item: InputItem, place: str) -> None:
        if item.call_id not in self._call_ids:
            raise InvalidParameter(
                "no function_call before it has this call_id: send the call as well", f"{place}.call_id"
            )
        if item.output is None:
            raise InvalidParameter("the output is missing", f"{place}.output", "missing_required_parameter")
        self.end_turn()
        self.turns.append(Message("tool", read_parts(item.output, f"{place}.output"), tool_call_id=item.call_id))

    def _read_reasoning(self, item: InputItem, place: str) -> None:
        sealed = unseal(item.encrypted_content, SealedReasoning) if item.encrypted_content else None
        if sealed is not None and sealed.call is not None:
            # Kept by call id: the reasoning item with the signature may come before or after the call's item.
            self._signatures[sealed.call] = sealed.signature
            return
        if sealed is not None:
            self._parts.append(ReasoningPart(sealed.text, sealed.signature))
            return
        if item.encrypted_content:
            self.ignored.append(f"{place}.encrypted_content")
        content = item.content if isinstance(item.content, tuple) else ()
        if text := "".join(part.text or "" for part in content or item.summary or ()):
            self._parts.append(ReasoningPart(text))

    def _read_compaction(self, item: InputItem, place: str) -> None:
        sealed = unseal(item.encrypted_content or "", SealedSummary)
        if sealed is None:
            raise InvalidParameter(
                "this is no summary of ours: send the conversation itself, or compact it here",
                f"{place}.encrypted_content",
                "invalid_value",
            )
        self.end_turn()
        self.turns.append(Message("user", _SUMMARY.format(sealed.summary)))

    def _make_call(self, item: InputItem) -> ToolCall:
        call = item.call_id or ""
        return ToolCall(call, item.name or "", item.arguments or "{}", self._signatures.get(call))


def _read_part(part: ContentPart, place: str) -> TextPart | ImagePart:
    match part.type:
        case "input_text" | "output_text" | "text":
            if part.text is not None:
                return TextPart(part.text)
            raise InvalidParameter("the part has no text", f"{place}.text", "missing_required_parameter")
        case "refusal":
            return TextPart(part.refusal or "")
        case "input_image":
            if part.file_id:
                raise InvalidParameter("no files are kept here: send the image as image_url", f"{place}.file_id")
            return read_image(f"{place}.image_url", part.image_url or "")
        case other:
            raise InvalidParameter(
                f"no model here takes parts of the type {other[:MAX_SHOWN_CHARACTERS]!r}; "
                f"send one of: {', '.join(PART_TYPES)}",
                f"{place}.type",
                "unsupported_value",
            )
