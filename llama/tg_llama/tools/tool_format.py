"""How models write their tool calls: a table for the parser of answers and for the grammar of forced calls.

A model has the format whose parser can read the calls that the model's chat template renders. The formats are those of
the models' own chat templates.
"""

import re
from typing import Literal, NamedTuple

_NAMES = re.compile("<\uff5c[^<>]+\uff5c>")
"""DeepSeek's control tokens within a mark."""


class ToolFormat(NamedTuple):
    """One way to write calls.

    Attributes:
        name: the name of the format.
        begin: the mark before a call, or before a list of calls; "" = none: the answer itself is a call.
        end: the mark after the call or list; "" = none.
        arguments_key: the key of the arguments, beside the key of the name.
        listed: whether a JSON list of calls follows `begin`.
        split: the mark between a bare name and the arguments, in formats whose calls are not JSON objects.
        item: the mark before each call, in formats whose `begin` and `end` enclose several calls; needs `split`.
        item_end: the mark after each call between `begin` and `end`.
        numbered: whether a bare name is "functions.NAME:NUMBER", which is also the call's id.
        name_key: the key of a call's name.
        id_key: the key of a call's number, which comes first; "" = none.
        syntax: how the arguments are written: as JSON, as one `<parameter=KEY>VALUE</parameter>` after the other, or as
            Python writes a call, `name(key=value)`.
        alone: whether each call has its own `begin` and `end`.
        empty: in formats without marks, what templates write in place of the text beside a call.
    """

    name: str
    begin: str
    end: str = ""
    arguments_key: str = "arguments"
    listed: bool = False
    split: str = ""
    item: str = ""
    item_end: str = ""
    numbered: bool = False
    name_key: str = "name"
    id_key: str = ""
    syntax: Literal["json", "tags", "python"] = "json"
    alone: bool = False
    empty: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, and the names within them. Each may be a control token of the model."""
        marks = (self.begin, self.item, self.split, self.item_end, self.end)
        return tuple(dict.fromkeys(part for mark in marks if mark for part in (mark, *_NAMES.findall(mark))))

    @property
    def sign(self) -> str:
        """Texts that each call of this form contains."""
        return self.split or ("(" if self.syntax == "python" else f'"{self.arguments_key}"')

    def call_id(self, number: int, name: str) -> str:
        """The id of a conversation's call of this number, for templates: some require nine letters or digits."""
        return f"functions.{name}:{number}" if self.numbered else f"{number:09d}"


def _deepseek(*words: str) -> str:
    """A mark in DeepSeek's spelling: with a full-width bar, and a lower block between words."""
    return "<\uff5c" + "\u2581".join(("tool", *words)) + "\uff5c>"


TOOL_FORMATS = (
    ToolFormat("hermes", "<tool_call>", "</tool_call>"),
    ToolFormat("hermes list", "<tool_call>", "</tool_call>", listed=True),
    ToolFormat("phi", "<|tool_call|>", "<|/tool_call|>"),
    ToolFormat("phi list", "<|tool_call|>", "<|/tool_call|>", listed=True),
    ToolFormat("granite", "<|tool_call|>", listed=True),
    ToolFormat("mistral", "[TOOL_CALLS]", listed=True),
    ToolFormat("mistral names", "[TOOL_CALLS]", split="[ARGS]"),
    ToolFormat("qwen coder", "<tools>", "</tools>"),
    ToolFormat("nemotron", "<TOOLCALL>", "</TOOLCALL>", listed=True),
    ToolFormat("jamba", "<tool_calls>", "</tool_calls>", listed=True),
    ToolFormat(
        "kimi",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        split="<|tool_call_argument_begin|>",
        item="<|tool_call_begin|>",
        item_end="<|tool_call_end|>",
        numbered=True,
    ),
    ToolFormat(
        "deepseek",
        _deepseek("calls", "begin"),
        _deepseek("calls", "end"),
        split=_deepseek("sep"),
        item=_deepseek("call", "begin"),
        item_end=_deepseek("call", "end"),
    ),
    ToolFormat(
        "deepseek v3",
        _deepseek("calls", "begin"),
        _deepseek("calls", "end"),
        split="\n```json\n",
        item=f"{_deepseek('call', 'begin')}function{_deepseek('sep')}",
        item_end=f"\n```{_deepseek('call', 'end')}",
    ),
    ToolFormat(
        "qwen3 coder",
        "<tool_call>",
        "</tool_call>",
        split=">",
        item="<function=",
        item_end="</function>",
        syntax="tags",
        alone=True,
    ),
    ToolFormat(
        "command",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        arguments_key="parameters",
        listed=True,
        name_key="tool_name",
        id_key="tool_call_id",
    ),
    ToolFormat("llama", "", arguments_key="parameters"),
    ToolFormat("llama 4", "", arguments_key="parameters", empty="<|python_start|><|python_end|>"),
    ToolFormat("python", "", listed=True, syntax="python"),
    ToolFormat("bare", ""),
)
"""The formats. Those with marks come first, because a bare call is also found between marks."""
