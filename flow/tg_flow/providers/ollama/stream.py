"""Lines of Ollama's answers -> LlmChunks, after its public reference ("Generate a chat message")."""

from typing import Any
from uuid import uuid4

import msgspec

from tg_base.llm import Embeddings, LlmChunk, event_error, write_signature
from tg_flow.providers.ollama.request import ORIGIN
from tg_schema import FinishReason, ModelInfo, Token, ToolCallDelta, encode
from tg_schema.completion import NO_TOKEN_ID


class _AskedFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


class _AskedCall(msgspec.Struct, frozen=True):
    function: _AskedFunction
    id: str | None = None


class _Message(msgspec.Struct, frozen=True, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: tuple[_AskedCall, ...] | None = None


class _TopLogprob(msgspec.Struct, frozen=True, gc=False):
    logprob: float
    token: str = ""


class _Logprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    top_logprobs: tuple[_TopLogprob, ...] | None = None


class ChatLine(msgspec.Struct, frozen=True):
    """One line of an answer; the last one has `done`."""

    model: str | None = None
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: tuple[_Logprob, ...] | None = None
    error: Any = None


class _Model(msgspec.Struct, frozen=True):
    name: str


class _ModelList(msgspec.Struct, frozen=True):
    models: tuple[_Model, ...]


_decode = msgspec.json.Decoder(ChatLine).decode
_NOTHING = _Message()


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models of `GET /api/tags`: those that the server has downloaded."""
    return tuple(ModelInfo(model.name) for model in msgspec.json.decode(body, type=_ModelList).models)


class _Embedded(msgspec.Struct, frozen=True):
    embeddings: tuple[tuple[float, ...], ...]
    prompt_eval_count: int | None = None


def read_embeddings(body: bytes) -> Embeddings:
    """The vectors in the answer to `POST /api/embed`."""
    answer = msgspec.json.decode(body, type=_Embedded)
    return Embeddings(answer.embeddings, answer.prompt_eval_count)


class StreamDecoder:
    """Decodes one answer: lines in, chunks out."""

    def __init__(self) -> None:
        self.done = False
        self._calls = 0
        self._thinks = False

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of a line; None for a line without content.

        Raises:
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        line = _decode(data)
        if line.error is not None:
            raise event_error(None, text=line.error)
        message = line.message or _NOTHING
        # Fast path: nearly all lines are text only.
        if line.done or message.tool_calls or message.thinking or line.logprobs or self._thinks:
            return self._uncommon(line, message)
        return LlmChunk(message.content, model=line.model) if message.content else None

    def _uncommon(self, line: ChatLine, message: _Message) -> LlmChunk:
        calls = tuple(self._call(call) for call in message.tool_calls or ())
        self._thinks = self._thinks or bool(message.thinking)
        # Thinking ends where anything else begins. Sign it there, so that the client sends it back.
        signs = self._thinks and bool(message.content or calls or line.done)
        self._thinks = self._thinks and not signs
        self.done = line.done
        return LlmChunk(
            message.content or "",
            in_token=line.prompt_eval_count if line.done else None,
            out_token=line.eval_count if line.done else None,
            model=line.model,
            finish_reason=self._finish(line) if line.done else None,
            reasoning=message.thinking or None,
            signature=write_signature(ORIGIN, "") if signs else None,
            tokens=tuple(
                Token(
                    NO_TOKEN_ID,
                    one.token,
                    one.logprob,
                    tuple((NO_TOKEN_ID, top.logprob) for top in one.top_logprobs or ()),
                    tuple(top.token for top in one.top_logprobs or ()),
                )
                for one in line.logprobs or ()
            ),
            tool_calls=calls,
        )

    def _finish(self, line: ChatLine) -> FinishReason:
        if line.done_reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _call(self, call: _AskedCall) -> ToolCallDelta:
        """A call is never split. Older servers send no id, so one is generated; results name the tool, not the id."""
        index = self._calls
        self._calls += 1
        arguments = encode(call.function.arguments).decode()
        return ToolCallDelta(index, call.id or f"call_{uuid4().hex}", call.function.name, arguments)
