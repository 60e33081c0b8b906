"""Loop -> model -> loop: one turn as a request, and the answer's records as events."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event
from tg_schema import TextCompletionRequest, TextCompletionResponse, Tool


@dataclass(frozen=True, slots=True)
class Goal:
    """What a loop is to find out, and what the model is told besides."""

    question: str
    instructions: str = ""


class Reader(ABC):
    """Reads one turn. Sans-I/O."""

    @abstractmethod
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        """What one more record says."""

    @abstractmethod
    def end(self) -> list[Event]:
        """What remains when the turn has come to its end."""


class Calling(ABC):
    """One of the ways in which a model calls tools."""

    @abstractmethod
    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        """The question for the next turn."""

    @abstractmethod
    def reader(self, *, acts: bool) -> Reader:
        """What reads its answer; `acts` = there are tools, so that text without a structure may yet be a thought."""
