"""Loop -> model -> loop: one turn as a request, and the answer's records as events."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event
from tg_schema import TextCompletionRequest, TextCompletionResponse, Tool
from tg_schema.conversation import ReasoningPart


@dataclass(frozen=True, slots=True)
class Goal:
    """The question that a loop answers, and further instructions for the model."""

    question: str
    instructions: str = ""


class Reader(ABC):
    """Parses one turn of the model. Sans-I/O."""

    @abstractmethod
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        """The events of the next record."""

    @abstractmethod
    def end(self) -> list[Event]:
        """The remaining events, at the end of the turn."""

    def thinking(self) -> tuple[ReasoningPart, ...]:
        """The reasoning that the provider wants back with the next request; none in text form."""
        return ()


class Calling(ABC):
    """A way in which a model calls tools."""

    @abstractmethod
    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        """The request for the next turn."""

    @abstractmethod
    def reader(self, *, acts: bool) -> Reader:
        """The parser of its answer; `acts` = there are tools, so that unstructured text may still be a thought."""
