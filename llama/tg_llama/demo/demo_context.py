"""Engine -> demo model: rows of a step -> logits, with the memory of each sequence."""

from collections import Counter
from itertools import groupby

import numpy as np

from tg_llama.core import Floats, State
from tg_llama.demo.demo_layers import DemoLayers


class DemoContext:
    """See `core.Context`. Streams in consecutive sequences are evaluated together."""

    def __init__(self, layers: DemoLayers, sequences: int) -> None:
        self.outputs = sequences
        self._layers = layers
        self._memory = layers.make_memory(sequences)
        # Memory beyond a sequence's length is never read, and takes no space until it is written.
        self._lengths = [0] * sequences
        self._logits: dict[int, Floats] = {}

    def decode(self, tokens: list[int], positions: list[int], sequences: list[int], outputs: list[int]) -> int:
        """See `core.Context`. Only a sequence's last row has logits."""
        self._logits, row = {}, 0
        # Rows of one sequence are consecutive, and sequences ascend.
        counted = enumerate(Counter(sequences).items())
        for (_, length), group in groupby(counted, lambda each: (each[1][0] - each[0], each[1][1])):
            slots = [slot for _, (slot, _) in group]
            end = row + len(slots) * length
            ids = np.array(tokens[row:end]).reshape(len(slots), length)
            logits = self._layers.evaluate(ids, np.array(positions[row:end:length]), self._memory, slots[0])
            self._logits |= zip(range(row + length - 1, end, length), logits, strict=True)
            for slot, start in zip(slots, positions[row:end:length], strict=True):
                self._lengths[slot] = start + length
            row = end
        return 0

    def logits(self, row: int) -> Floats:
        """See `core.Context`."""
        return self._logits[row]

    def use(self, adapter: None) -> None:
        """See `core.Context`: there are no adapters."""

    def keep(self, sequence: int, tokens: int) -> int:
        """See `core.Context`: no prefix is kept, so each prompt is evaluated from its start."""
        return 0

    def copy(self, source: int, target: int) -> None:
        """See `core.Context`."""
        self.restore(target, self.save(source))

    def save(self, sequence: int) -> State:
        """See `core.Context`."""
        return self._memory[:, :, sequence, :, : self._lengths[sequence]].copy()

    def restore(self, sequence: int, state: State) -> bool:
        """See `core.Context`."""
        length = self._lengths[sequence] = state.shape[-2]
        self._memory[:, :, sequence, :, :length] = state
        return True

    def close(self) -> None:
        """See `core.Context`: Python frees the memory."""
