"""How models write their tool calls: a table, read by the parser of answers and by the grammar of forced calls.

A model's template says which row is its own: its rendering of a call must be read back by the row's parser. The wire
facts are those of the model's own chat templates.
"""

from typing import NamedTuple


class ToolFormat(NamedTuple):
    """One way to write calls as JSON.

    Attributes:
        name: what it is called.
        begin: the mark before a call, or before a list of calls; "" = none, the answer itself is a call.
        end: the mark after it; "" = none.
        arguments_key: the key of the arguments beside "name".
        listed: whether a JSON list of calls follows `begin`.
        split: the mark between a bare name and the arguments, for formats whose calls are no JSON objects.
    """

    name: str
    begin: str
    end: str = ""
    arguments_key: str = "arguments"
    listed: bool = False
    split: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, which may be control tokens of the model."""
        return tuple(mark for mark in (self.begin, self.split, self.end) if mark)


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
    ToolFormat("llama", "", arguments_key="parameters"),
    ToolFormat("bare", ""),
)
"""The formats, those with marks first: a bare one is also found within marks."""
