"""What a loopback provider shall do with a request, and what it saw of one: the same words for every wire."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from tg_schema import Message, ModelInfo, Sampling, TgError, Tool
from tg_schema.errors import Unavailable


class Fault(Enum):
    """How a provider misbehaves, after `Plan.after` pieces of text."""

    NONE = auto()
    REFUSE = auto()
    """Answer with the status for `Plan.error`, before anything else."""
    ERROR = auto()
    """Report `Plan.error` in the stream, as this wire does it."""
    END = auto()
    """End the body cleanly, without the terminal marker."""
    KEEP_ALIVE = auto()
    """Send this wire's keep-alives for ever, and nothing else. A wire without keep-alives stalls."""
    STALL = auto()
    """Send nothing more, and keep the connection open."""
    SILENCE = auto()
    """Take the request, and send nothing at all, not even a status."""
    ABORT = auto()
    """Break the connection, without the end of the body."""
    GARBAGE = auto()
    """Send bytes that make no sense on this wire, and end the body."""
    TEXT_AFTER_FINISH = auto()
    """Send the whole plan, with more text after everything from the terminal marker on."""
    ENDLESS_TEXT = auto()
    """Send text for ever, as fast as it is read."""
    ENDLESS_FILLER = auto()
    """Send what this wire passes over for ever, as fast as it is read."""
    COMPRESSED = auto()
    """The same as gzip, which nobody asked for: a thousand times as much."""
    ENDLESS_CONTINUE = auto()
    """Send interim responses (100 Continue) for ever, and no status."""


@dataclass(frozen=True)
class Counts:
    """Usage in our terms: `cached` and `written` are parts of `tokens_in`, `reasoning` a part of `tokens_out`.

    Each wire translates it into its provider's terms, which may count the parts apart.
    """

    tokens_in: int = 11
    tokens_out: int = 7
    cached: int = 4
    reasoning: int = 2
    written: int = 2


@dataclass(frozen=True)
class PlannedCall:
    """A tool call that the model makes; `arguments` is JSON text in pieces (a wire without deltas joins them)."""

    name: str
    arguments: tuple[str, ...] = ("{}",)
    id: str = "call_1"


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass(frozen=True)
class Plan:
    """One answer.

    Attributes:
        text: its pieces, an event each.
        reasoning: thinking, an event each, before the text. A wire that tells no reasoning leaves it out.
        redacted: whether the provider tells encrypted thinking after that. A wire without it leaves it out.
        calls: tool calls, after the text.
        counts: usage; None = the provider tells none.
        finish: the terminal marker in our words: "stop", "length", "tool_calls" or "content_filter".
        fault, after: how the provider misbehaves, and after how many pieces of text.
        error: of which kind the refusal or the error in the stream is; the wire has the provider's words for it.
        retry_after: seconds that a refusal asks to wait; None = it doesn't say.
        cut: bytes in each write, so that characters are split; 0 = an event in each write.
        gate: a connection breaks once it is set. A client library may drop what it has not read.
        models: what the provider's list of models has.
    """

    text: tuple[str, ...] = ("Hel", "lo €", "!")
    reasoning: tuple[str, ...] = ()
    redacted: bool = False
    calls: tuple[PlannedCall, ...] = ()
    counts: Counts | None = field(default_factory=Counts)
    finish: str = "stop"
    fault: Fault = Fault.NONE
    after: int = 0
    error: type[TgError] = Unavailable
    retry_after: float | None = None
    cut: int = 0
    gate: asyncio.Event = field(default_factory=_open_gate)
    models: tuple[ModelInfo, ...] = (ModelInfo("fake-model"), ModelInfo("fake-other"))

    @property
    def retry_headers(self) -> dict[str, str]:
        """What a refusal over HTTP says of the wait."""
        return {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}


@dataclass(frozen=True)
class Asked:
    """A request as the wire had it, in our words; what the wire does not carry is absent.

    Attributes:
        model: as the provider knows it.
        system: the text in the system's own place; "" = none.
        turns: the conversation without system texts. Ids of tool calls are "" or None where a wire has none. Thinking
            is a part of a turn, and its signature the provider's own text.
        tool_choice: "auto", "none", "required", a tool's name, or None where nothing was said.
        schema: that the answer must satisfy.
        strict: whether it is enforced while the model writes; None = the wire has no word for that.
        json: whether JSON without a schema is asked for.
    """

    model: str
    turns: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    json: bool = False
    sampling: Sampling = Sampling()


@dataclass
class Exchange:
    """One request for an answer (not for a list of models) as the server saw it.

    Attributes:
        asked: what it says; None if the server refused it as wrong.
        headers: by lower-case name.
        path: the target as the client wrote it.
        refused: the status of `Fault.REFUSE`.
        began: set when the plan's last byte before a stall is written, or the answer is.
        left: set when the client's socket has closed before the answer's end.
        done: set when the answer was written to its end.
    """

    path: str
    headers: dict[str, str]
    asked: Asked | None = None
    refused: int | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Wire(Protocol):
    """A provider on the loopback interface. `LoopbackServer` is one for everything that speaks HTTP/1.1.

    Attributes:
        url: "http://127.0.0.1:PORT", without a path.
        exchanges: every request for an answer so far.
    """

    url: str
    exchanges: list[Exchange]

    def play(self, *plans: Plan) -> None:
        """What to do with the next requests; the last plan serves all that follow."""

    async def exchange(self, number: int) -> Exchange:
        """The request of that number, counted from 0, as soon as it has come."""
