"""Steps of a streamed answer -> those that are told at once, and the last one, which is told with the whole text."""

from tg_gateway.dialects.tgi.token_reader import Step
from tg_schema.completion import NO_TOKEN_ID


class LastStep:
    """Holds back the step that by its length ends the answer.

    Args:
        most: tokens of the answer at most; None = as many as there are.
    """

    __slots__ = ("_held", "_left")

    def __init__(self, most: int | None) -> None:
        self._left = most
        self._held: Step | None = None

    @property
    def holds(self) -> bool:
        """Whether one is held back; text that follows has to wait for it."""
        return self._held is not None

    def pass_on(self, steps: list[Step]) -> list[Step]:
        """Those of these steps, and of what was held back, that are not the last for sure."""
        if self._left is None or not steps:
            return steps
        before = self.release()
        # Control tokens count too: only one that another token follows is a step, and the end token is none.
        self._left -= sum([step.token.id != NO_TOKEN_ID for step in steps])
        # Below zero the provider has not kept to the limit; nobody knows then which token is the last.
        if self._left == 0 and steps[-1].token.id != NO_TOKEN_ID:
            self._held = steps.pop()
        return before + steps

    def release(self) -> list[Step]:
        """What was held back."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def end(self, told: Step) -> tuple[list[Step], Step]:
        """What comes before the last step, and the last step.

        Args:
            told: the end token, if the provider has told one.
        """
        held = self.release()
        if held and told.token.id == NO_TOKEN_ID:
            return [], held[0]
        return held, told
