"""Steps of a streamed answer -> those that are sent at once, and the last one, which is sent with the whole text."""

from tg_doors.tgi.token_reader import Step
from tg_schema.completion import NO_TOKEN_ID


class LastStep:
    """Holds back the step with which an answer reaches its maximum length.

    Args:
        most: the most tokens of the answer; None = not limited, and no step is held back.
    """

    __slots__ = ("_held", "_left")

    def __init__(self, most: int | None) -> None:
        self._left = most
        self._held: Step | None = None

    @property
    def holds(self) -> bool:
        """Whether a step is held back; text that follows has to wait for it."""
        return self._held is not None

    def pass_on(self, steps: list[Step]) -> list[Step]:
        """Take new steps; returns the steps that can be sent, the one held back before among them."""
        if self._left is None or not steps:
            return steps
        before = self.release()
        # Control tokens count too: they are steps only if another token follows. The end token is not a step.
        self._left -= sum([step.token.id != NO_TOKEN_ID for step in steps])
        # Below zero the provider has exceeded the limit; then the last token is unknown.
        if self._left == 0 and steps[-1].token.id != NO_TOKEN_ID:
            self._held = steps.pop()
        return before + steps

    def release(self) -> list[Step]:
        """Return the step that was held back, if any; it is not the last one."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def end(self, last: Step) -> tuple[list[Step], Step]:
        """The steps before the last one that were not sent yet, and the last step.

        Args:
            last: the end token, or the id `NO_TOKEN_ID` if the provider tells none.
        """
        held = self.release()
        if held and last.token.id == NO_TOKEN_ID:
            return [], held[0]
        return held, last
