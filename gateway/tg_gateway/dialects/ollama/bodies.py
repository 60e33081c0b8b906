"""The bodies of Ollama's requests as clients send them, by its API reference (ollama/ollama, docs/api.md)."""

from typing import Annotated, Any, Literal

import msgspec

from tg_gateway.dialects.chat import CommonSampling

MAX_TOP_LOGPROBS = 20
"""Ollama's limit."""


# Ollama's server takes whole numbers also as `3.0`, and some clients write all numbers so.
_WholeLimit = Annotated[float, msgspec.Meta(ge=-2, le=2**31 - 1, multiple_of=1)]
_WholeTopK = Annotated[float, msgspec.Meta(ge=-1, le=2**31 - 1, multiple_of=1)]
_WholeSeed = Annotated[float, msgspec.Meta(ge=-(2**63), lt=2**63, multiple_of=1)]


class Options(CommonSampling, frozen=True, kw_only=True):
    """The options that choose tokens; null is as good as absent. Whole numbers may be floats.

    Attributes:
        num_predict: the most tokens of the answer; 0 and less = no limit but the model's.
        repeat_penalty: divides the logits of tokens that occurred before.
    """

    num_predict: Annotated[int, msgspec.Meta(ge=-2, le=2**31 - 1)] | _WholeLimit | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | _WholeTopK | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | _WholeSeed | None = None
    stop: str | tuple[str, ...] | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """What the assistant called; `arguments` is an object, not text."""

    name: str
    arguments: dict[str, Any] | None = None


class AssistantCall(msgspec.Struct, frozen=True):
    """A call that the assistant made in an earlier turn; older clients know no `id`."""

    function: CalledFunction
    id: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn. A tool's result names its call by `tool_name`, or by `tool_call_id`."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: tuple[str, ...] | None = None
    tool_calls: tuple[AssistantCall, ...] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Function(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(msgspec.Struct, frozen=True):
    """A tool of the type `function`, which is the only one."""

    function: Function
    type: str | None = None


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True):
    """What chats and texts have in common.

    Attributes:
        model: `name` or `name:tag`; `latest` is the tag of a name without one.
        stream: true if it is absent.
        format: "json", or the JSON schema of the answer; "" = text.
    """

    model: str | None = None
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: Options | None = None
    think: bool | Literal["low", "medium", "high", ""] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


class ChatBody(AnswerBody, frozen=True, kw_only=True):
    """`POST /api/chat`."""

    messages: tuple[ChatMessage, ...] | None = None
    tools: tuple[FunctionTool, ...] | None = None


class GenerateBody(AnswerBody, frozen=True, kw_only=True):
    """`POST /api/generate`. `template` and `context` are refused: no record has them."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: tuple[int, ...] | None = None
    raw: bool | None = None
    images: tuple[str, ...] | None = None


class EmbedBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/embed`. If `truncate` is absent, it is true for models that can truncate texts."""

    model: str | None = None
    input: str | tuple[str, ...] | None = None
    truncate: bool | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None


class EmbedOneBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/embeddings`, which is older."""

    model: str | None = None
    prompt: str | None = None


class ShowBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/show`; older clients say `name`."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
