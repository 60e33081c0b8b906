"""One request of a simulated load, and what became of it."""

from dataclasses import dataclass, field

from tg_picker.core import Fingerprint, Objective, Placement
from tg_picker.core.interface import NO_FINGERPRINT


@dataclass(eq=False, slots=True)
class Job:
    """A request. The first part is the load's; the rest is written while it runs.

    Attributes:
        arrival: seconds of virtual time.
        prompt_tokens: of the prompt.
        output_tokens: of the answer; the scheduler does not know them.
        objective: seconds to the first token.
        adapter: None = the base model.
        prefix: the prompt's blocks.
        answered_prefix: those of prompt and answer, where a next turn begins with them.
        priority: below 0 = sheddable.
        promise: of its route, where that is not its objective.
        session: index of its conversation; -1 = none.
        first_at: when its first token came.
        ended_at: when it ended, however.
        rejected: it was refused.
        cached_tokens: of its prompt, found in the server's cache.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    objective: float
    adapter: str | None = None
    prefix: Fingerprint = NO_FINGERPRINT
    answered_prefix: Fingerprint = NO_FINGERPRINT
    priority: int = 0
    promise: Objective | None = None
    session: int = -1
    first_at: float | None = None
    ended_at: float | None = None
    rejected: bool = False
    cached_tokens: int = 0
    placement: Placement | None = None
    # While it runs, for the server alone:
    generated: int = 0
    private_tokens: int = 0
    left_tokens: int = 0
    start_clock: int = 0
    blocks: tuple[int, ...] = field(default=())

    def ttft(self, now: float) -> float:
        """Seconds to the first token; so far, if there was none by then."""
        return (now if self.first_at is None else self.first_at) - self.arrival
