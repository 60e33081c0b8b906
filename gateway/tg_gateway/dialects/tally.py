"""Records of one answer -> the facts besides the text: which model answers, what is used, and why it ends."""

from tg_schema import FinishReason, TextCompletionResponse, Usage
from tg_schema.completion import UNCOUNTED, counts_of


class Tally:
    """What the records add up to.

    Attributes:
        model: the name of the model that answers; None = not known yet, here as below.
        usage: the sum of all counts.
        finish_reason: why the answer ended.
        stopped_by: the stop string or the token id that ended it.
        seed: the seed that was used.
        called: whether the model calls a tool.
    """

    __slots__ = ("called", "finish_reason", "model", "seed", "stopped_by", "usage")

    def __init__(self) -> None:
        self.model: str | None = None
        self.usage = Usage()
        self.finish_reason: FinishReason | None = None
        self.stopped_by: str | int | None = None
        self.seed: int | None = None
        self.called = False

    def add(self, record: TextCompletionResponse) -> None:
        """Add a record; its counts are deltas."""
        self.model = record.model or self.model
        if counts_of(record) != UNCOUNTED:
            self.usage += record.usage
        self.finish_reason = record.finish_reason or self.finish_reason
        self.stopped_by = self.stopped_by if record.stopped_by is None else record.stopped_by
        self.seed = self.seed if record.seed is None else record.seed
        self.called = self.called or bool(record.tool_calls)
