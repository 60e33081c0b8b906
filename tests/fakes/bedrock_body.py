"""The body of Bedrock's ConverseStream, after the "Amazon Bedrock API reference"; what it does not name is refused."""

import base64
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tests.fakes.anthropic_transcript import sign_thought
from tests.fakes.schema_rules import check_enforceable
from tests.fakes.strict import Strict

REDACTED = base64.b64encode(b"\x12\xba\x0a").decode()
"""The only encrypted thinking that this API has ever told."""


class Source(Strict, frozen=True):
    bytes: str


class Image(Strict, frozen=True):
    format: Literal["png", "jpeg", "gif", "webp"]
    source: Source


class ToolUse(Strict, frozen=True):
    toolUseId: Annotated[str, Meta(pattern="^[a-zA-Z0-9_.:-]{1,64}$")]  # noqa: N815
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    input: dict[str, Any]


class ReasoningText(Strict, frozen=True):
    text: str
    signature: str | None = None


class Reasoning(Strict, frozen=True):
    reasoningText: ReasoningText | None = None  # noqa: N815
    redactedContent: str | None = None  # noqa: N815


class CachePoint(Strict, frozen=True):
    type: Literal["default"]
    ttl: Literal["5m", "1h"] | None = None


class ResultBlock(Strict, frozen=True):
    text: str | None = None
    image: Image | None = None


class ToolResult(Strict, frozen=True):
    toolUseId: str  # noqa: N815
    content: tuple[ResultBlock, ...]
    status: Literal["success", "error"] | None = None


class Block(Strict, frozen=True):
    text: Annotated[str, Meta(min_length=1)] | None = None
    image: Image | None = None
    toolUse: ToolUse | None = None  # noqa: N815
    toolResult: ToolResult | None = None  # noqa: N815
    reasoningContent: Reasoning | None = None  # noqa: N815
    cachePoint: CachePoint | None = None  # noqa: N815


class Turn(Strict, frozen=True):
    role: Literal["user", "assistant"]
    content: Annotated[tuple[Block, ...], Meta(min_length=1)]


class SystemBlock(Strict, frozen=True):
    text: Annotated[str, Meta(min_length=1)] | None = None
    cachePoint: CachePoint | None = None  # noqa: N815


class Inference(Strict, frozen=True):
    maxTokens: Annotated[int, Meta(ge=1)] | None = None  # noqa: N815
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    topP: Annotated[float, Meta(ge=0, le=1)] | None = None  # noqa: N815
    stopSequences: tuple[str, ...] | None = None  # noqa: N815


class InputSchema(Strict, frozen=True):
    json: dict[str, Any]


class ToolSpec(Strict, frozen=True):
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    inputSchema: InputSchema  # noqa: N815
    description: Annotated[str, Meta(min_length=1)] | None = None
    strict: bool | None = None


class ToolEntry(Strict, frozen=True):
    toolSpec: ToolSpec | None = None  # noqa: N815
    cachePoint: CachePoint | None = None  # noqa: N815


class Empty(Strict, frozen=True):
    pass


class NamedTool(Strict, frozen=True):
    name: str


class ToolChoice(Strict, frozen=True):
    auto: Empty | None = None
    any: Empty | None = None
    tool: NamedTool | None = None


class ToolConfig(Strict, frozen=True):
    tools: Annotated[tuple[ToolEntry, ...], Meta(min_length=1)]
    toolChoice: ToolChoice | None = None  # noqa: N815


class JsonSchema(Strict, frozen=True):
    schema: str
    name: str
    description: str | None = None


class Structure(Strict, frozen=True):
    jsonSchema: JsonSchema  # noqa: N815


class TextFormat(Strict, frozen=True):
    type: Literal["json_schema"]
    structure: Structure


class OutputConfig(Strict, frozen=True):
    textFormat: TextFormat | None = None  # noqa: N815
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class Converse(Strict, frozen=True):
    """The body of ConverseStream."""

    messages: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    system: tuple[SystemBlock, ...] = ()
    inferenceConfig: Inference = Inference()  # noqa: N815
    toolConfig: ToolConfig | None = None  # noqa: N815
    outputConfig: OutputConfig | None = None  # noqa: N815
    additionalModelRequestFields: dict[str, Any] | None = None  # noqa: N815

    def check(self) -> None:
        """What the reference says beyond the shapes."""
        if self.outputConfig is not None and self.outputConfig.textFormat is not None:
            schema = self.outputConfig.textFormat.structure.jsonSchema.schema
            check_enforceable(msgspec.json.decode(schema), all_required=False)
        roles = [turn.role for turn in self.messages]
        if roles[0] != "user" or any(before == after for before, after in pairwise(roles)):
            raise msgspec.ValidationError("A conversation must start with a user message, and roles must alternate.")
        blocks = [block for turn in self.messages for block in turn.content]
        if self.toolConfig is None and any(block.toolUse or block.toolResult for block in blocks):
            raise msgspec.ValidationError("The toolConfig field must be defined when using toolUse blocks.")
        self._check_thoughts()

    def _check_thoughts(self) -> None:
        """A model that thinks wants its thinking back unchanged, before the calls that it led to."""
        for block in (block for turn in self.messages for block in turn.content):
            thought = block.reasoningContent
            told = thought and thought.reasoningText
            if told and told.signature != sign_thought(told.text):
                raise msgspec.ValidationError("Invalid `signature` in `thinking` block")
            if thought and thought.redactedContent not in {None, REDACTED}:
                raise msgspec.ValidationError("Invalid `data` in `redacted_thinking` block")
        thinking = (self.additionalModelRequestFields or {}).get("thinking", {})
        asked = max(
            number
            for number, turn in enumerate(self.messages)
            if turn.role == "user" and not any(block.toolResult for block in turn.content)
        )
        answers = [turn for turn in self.messages[asked + 1 :] if turn.role == "assistant"]
        if thinking.get("type") == "enabled" and answers and not answers[0].content[0].reasoningContent:
            raise msgspec.ValidationError("Expected `thinking` or `redacted_thinking`, but found `tool_use`")
