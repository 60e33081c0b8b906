"""Request body -> scheduler: its prompt as one text, which is the same for one conversation in any API.

The APIs are OpenAI's chats, completions and Responses and Anthropic's Messages. Servers are found by a prompt's prefix,
so all pickers that share placements must use one form: the tools, the system texts, then the turns in order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from tg_picker.core import (
    CHARACTERS_PER_TOKEN,
    Fingerprint,
    fingerprint_prompt,
    fingerprint_tokens,
    salt_tokens,
)
from tg_schema.codec import decode_json

MAX_PREFIX_CHARACTERS: Final = 512 * 1024
"""Characters of a prompt that are hashed to find a server: 131,072 tokens. Hashing 32 MiB would block the event loop
for half a second."""

MAX_PREFIX_TOKENS: Final = MAX_PREFIX_CHARACTERS // CHARACTERS_PER_TOKEN
"""The same limit in tokens, for a prompt of token ids."""

MAX_PARSED_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a field, or of a turn, that are parsed. A larger one is used as raw JSON."""

MAX_VALUES: Final = 150_000
"""Most values of a field or turn that is parsed. Commas and opening brackets are counted, even those within texts."""

MAX_ITEMS: Final = 10_000
"""Most turns of a conversation, and most tools. A longer list is used as one raw value."""

MAX_LEADING_TURNS: Final = 64
"""Most leading system turns that are joined into one text."""

Part = tuple[str, str]
"""The role, or the kind of a part, and its text."""

_ABSENT = Raw()
_IDS = msgspec.json.Decoder(list[Annotated[int, Meta(ge=0, lt=2**32)]])
_LIST = msgspec.json.Decoder(list[Raw])
_NO_VALUES = bytes(set(range(256)) - set(b",[{"))
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
_SYSTEM: Final = "system"
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_CALLS: Final = frozenset({"tool_use", "function_call"})
_NESTED: Final = _CALLS | {"tool_result", "function_call_output"}
# Leave out earlier thinking, because servers drop it.
_THINKING: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
# The separators between parts are characters that no template writes and few texts contain.
_PART, _SPOKEN, _IMAGE = "\x1e", "\x1f", "\x1d"


class PromptFields(Struct):
    """The raw JSON fields that make up the prompt; and `cache_salt`, which decides which cache it may share."""

    tools: Raw = _ABSENT
    system: Raw = _ABSENT
    instructions: Raw = _ABSENT
    messages: Raw = _ABSENT
    input: Raw = _ABSENT
    prompt: Raw = _ABSENT
    cache_salt: Raw = _ABSENT


class Prompt(Struct, frozen=True):
    """The text that a model reads.

    Attributes:
        text: its first MAX_PREFIX_CHARACTERS.
        characters: the number of its characters; parts that `text` omits count by the bytes of their JSON.
        ids: its first MAX_PREFIX_TOKENS, if the prompt is given in token ids; then `text` is empty.
        salt: separates its cache from other callers' caches; "" = not separated.
    """

    text: str
    characters: int
    ids: tuple[int, ...] | None = None
    salt: str = ""

    @property
    def tokens(self) -> int:
        """An estimate: only servers can count the tokens."""
        return self.characters // CHARACTERS_PER_TOKEN

    def fingerprint(self, model: str, adapter: str | None) -> Fingerprint:
        """Hashes by which servers with the prompt's beginning are found, for a model and an adapter."""
        if self.ids is None:
            return fingerprint_prompt(self.text, model, adapter, self.salt)
        return fingerprint_tokens(self.ids, salt_tokens(adapter, self.salt))


def read_prompt(fields: PromptFields) -> Prompt:
    """The prompt of a body.

    A value of an unexpected shape, or too large to be parsed at once, is used as raw JSON. Takes 2.5 ms for 100,000
    tokens, since little is read after MAX_PREFIX_CHARACTERS.
    """
    prompt = _read_ids(fields) or _read(fields)
    salt = _decode(fields.cache_salt) if memoryview(fields.cache_salt) else ""
    return msgspec.structs.replace(prompt, salt=salt) if salt and isinstance(salt, str) else prompt


def _read_ids(fields: PromptFields) -> Prompt | None:
    """The prompt of a completion in token ids; None: it is not such a prompt."""
    is_alone = fields.messages is fields.input is _ABSENT
    if not is_alone or bytes(memoryview(fields.prompt)[:1]) != b"[" or not _is_readable(fields.prompt):
        return None
    try:
        ids = _IDS.decode(fields.prompt)
    except _UNREADABLE:
        return None
    return Prompt("", len(ids) * CHARACTERS_PER_TOKEN, tuple(ids[:MAX_PREFIX_TOKENS]))


def _read(fields: PromptFields) -> Prompt:
    written: list[str] = []
    size = left = 0
    for item, read in _pieces(fields):
        if isinstance(item, Raw):
            if size >= MAX_PREFIX_CHARACTERS:
                left += len(memoryview(item))
                continue
            if not _is_readable(item):
                left += max(len(memoryview(item)) - MAX_PREFIX_CHARACTERS, 0)
        for role, text in read(item):
            written += (_PART, role, _SPOKEN, text)
            size += 2 + len(role) + len(text)
    text = "".join(written)
    return Prompt(text[:MAX_PREFIX_CHARACTERS], size + left)


def _pieces(fields: PromptFields) -> Iterator[tuple[Any, Callable[[Any], Iterable[Part]]]]:
    """The parts of a prompt, in the order of chat templates, each with the function that reads it."""
    for tool in _items(fields.tools):
        yield tool, _tool
    instructions = [text for raw in (fields.system, fields.instructions) if memoryview(raw) for text in _system(raw)]
    turns = [*_items(fields.messages), *_items(fields.input)]
    at = 0
    # Join the leading system texts, whichever fields or turns contain them.
    while at < min(len(turns), MAX_LEADING_TURNS) and (parts := _leading(turns[at])) is not None:
        instructions += parts
        at += 1
    if any(instructions):
        yield None, lambda _: [(_SYSTEM, "\n\n".join(filter(None, instructions)))]
    for turn in turns[at:]:
        yield turn, _turn
    if memoryview(fields.prompt):
        yield fields.prompt, lambda raw: [("prompt", _value_text(raw))]


def _is_readable(raw: Raw) -> bool:
    """Whether it may be parsed. A body of a few megabytes may have millions of values, each an object in memory."""
    size = len(memoryview(raw))
    if size <= MAX_VALUES or size > MAX_PARSED_BYTES:
        return size <= MAX_VALUES
    # Count all three characters in one pass, in a third of the time of three counts.
    return len(bytes(raw).translate(None, _NO_VALUES)) <= MAX_VALUES


def _items(raw: Raw) -> list[Raw]:
    """The items of a list, each parsed later by itself. Any other value, or too large a list, is one item."""
    size = len(memoryview(raw))
    if not size or not _is_readable(raw):
        return [raw] if size else []
    try:
        items = _LIST.decode(raw)
    except _UNREADABLE:
        return [raw]
    return items if len(items) <= MAX_ITEMS else [raw]


def _leading(turn: Any) -> list[str] | None:
    """The texts of a system turn; None if the turn is not one."""
    # Searching the JSON is cheaper than parsing each turn twice.
    if isinstance(turn, Raw) and b"system" not in (head := bytes(memoryview(turn)[:4096])) and b"developer" not in head:
        return None
    item = _decode(turn)
    if isinstance(item, dict) and _role(item) == _SYSTEM:
        return [text for _, text in _message(item)]
    return None


def _system(raw: Raw) -> list[str]:
    value = _decode(raw)
    blocks = value if isinstance(value, list) else [value]
    return [text for block in blocks for _, text in _content(_SYSTEM, [block])]


def _tool(item: Any) -> Iterable[Part]:
    tool = _decode(item)
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return [("tools", _json(tool))]
    schema = function.get("parameters") or function.get("input_schema") or {}
    return [("tools", f"{function['name']}{_SPOKEN}{function.get('description') or ''}{_SPOKEN}{_json(schema)}")]


def _turn(turn: Any) -> Iterable[Part]:
    item = _decode(turn)
    if isinstance(item, str):
        return [("user", item)]
    if isinstance(item, dict) and "role" in item:
        return _message(item)
    # In Responses, some blocks that Anthropic nests in a message are items of their own.
    return _content("", [item]) if _kind(item) in _NESTED | _THINKING else [("", _json(item))]


def _role(message: dict[str, Any]) -> str:
    role = str(message.get("role"))
    return _SYSTEM if role == "developer" else role


def _message(message: dict[str, Any]) -> Iterator[Part]:
    yield from _content(_role(message), message.get("content"))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        yield (
            _call(function.get("name"), function.get("arguments")) if isinstance(function, dict) else ("", _json(call))
        )


def _content(role: str, content: Any, *, within_result: bool = False) -> Iterator[Part]:
    """The texts and images of one turn as one part.

    Calls and results, which some APIs nest in the turn, become parts of their own.
    """
    text = ""
    for block in content if isinstance(content, list) else [content]:
        kind = _kind(block)
        if isinstance(block, str):
            text += block
        elif kind in _TEXTS:
            text += str(block.get("text") or "")
        elif kind in _NESTED:
            if text:
                yield role, text
            text = ""
            yield from _block(block, within_result)
        elif block is not None and kind not in _THINKING:
            text += _IMAGE + (_image(block) or _json(block))
    if text:
        yield role, text


def _kind(value: Any) -> str:
    """The type of an item or block; "" if it has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def _block(block: dict[str, Any], within_result: bool) -> Iterator[Part]:
    if block["type"] in _CALLS:
        yield _call(block.get("name"), block.get("input", block.get("arguments")))
    elif within_result:
        # No API has results within results, and a nesting of hundreds would overflow the stack.
        yield "tool", _json(block)
    else:
        yield from _content("tool", block.get("content", block.get("output")), within_result=True)


def _image(block: Any) -> str | None:
    """The URL of an image, or its data as a data URL; None if the block is not an image."""
    if not isinstance(block, dict):
        return None
    source, image = block.get("source"), block.get("image_url")
    if isinstance(source, dict) and block.get("type") == "image":
        return str(source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


def _call(name: Any, arguments: Any) -> Part:
    """A call. One API has its arguments as a value, others as JSON text with any white space."""
    if isinstance(arguments, str):
        try:
            arguments = decode_json(arguments)
        except _UNREADABLE:
            return "call", f"{name}{_SPOKEN}{arguments}"
    return "call", f"{name}{_SPOKEN}{_json(arguments)}"


def _value_text(raw: Raw) -> str:
    value = _decode(raw)
    return value if isinstance(value, str) else _json(value)


def _decode(raw: Any) -> Any:
    """The parsed value. If it is too large or nested too deep: its JSON text, or the beginning of that."""
    if not isinstance(raw, Raw):
        return raw
    if _is_readable(raw):
        try:
            return decode_json(bytes(raw))
        except _UNREADABLE:
            pass
    return bytes(memoryview(raw)[:MAX_PREFIX_CHARACTERS]).decode("utf-8", "replace")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
