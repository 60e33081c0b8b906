"""One row of the table: how one door is asked for the same completion, and how its answer is read."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import ClientSession

MODEL = "tinydemo"
SYSTEM = "Be brief."

Ending = Literal["length", "stop", "end"]
"""The most tokens, a stop string, or the model's own end."""


@dataclass(frozen=True)
class Case:
    """What is asked for at every door.

    Attributes:
        seed: None = the most probable token is taken each time, so that a door without seeds can be asked too.
        ending: how the answer must end.
    """

    name: str
    question: str
    max_tokens: int
    ending: Ending
    seed: int | None = None
    stop: str | None = None

    @property
    def temperature(self) -> float:
        """0 without a seed."""
        return 0.0 if self.seed is None else 1.0


@dataclass(frozen=True)
class Asked:
    """A case, and its conversation as the model reads it: for the doors that take raw text, or token ids."""

    case: Case
    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Told:
    """What an answer says; None = the door does not say it.

    Attributes:
        ids: of the answer's tokens, without the end token.
        pieces: their texts.
        out_token: how many they are.
        reason: why it ended, in the door's word.
    """

    text: str | None = None
    ids: tuple[int, ...] | None = None
    pieces: tuple[str, ...] | None = None
    in_token: int | None = None
    out_token: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a door is: a gateway."""

    http: ClientSession
    url: str


Send = Callable[[Place, Asked], Awaitable[list[Any]]]
"""Ask a door: all that it sends."""


@dataclass(frozen=True)
class Row:
    """One door in one form.

    Attributes:
        send: asks it.
        read: makes one answer of what it sends.
        words: for the endings; empty = it tells none.
        tells: the fields of `Told`, besides the reason, that the door says.
        seeds: whether a request can have a seed.
        stops: whether a request can have a stop string.
        keeps_stop: whether the stop string stays in the text.
    """

    name: str
    send: Send
    read: Callable[[list[Any]], Told]
    words: Mapping[Ending, str]
    tells: str = "text ids pieces in_token out_token"
    seeds: bool = True
    stops: bool = True
    keeps_stop: bool = False

    def takes(self, case: Case) -> bool:
        """Whether the door can be asked for this."""
        return (self.seeds or case.seed is None) and (self.stops or case.stop is None)
