"""Slots -> Batch: the tokens that the next step evaluates."""

from collections.abc import Sequence
from typing import Self

from tg_llama.engine.slot import Slot


class Batch:
    """The rows of one step.

    Attributes:
        tokens, positions, sequences, outputs: the columns; `outputs` is 1 if the row's logits are wanted.
        slots: the slots that have tokens in this step.
        sampled: the slots that get their next token from this step, each with its row; a slot that scores has one entry
            for each scored token.
        prompt_tokens: the number of prompt rows.
        generated: the number of entries in `sampled` that choose a token.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.sequences: list[int] = []
        self.outputs: list[int] = []
        self.slots: list[Slot] = []
        self.sampled: list[tuple[Slot, int]] = []
        self.prompt_tokens = self.generated = 0

    @classmethod
    def of(cls, slots: Sequence[Slot], most: int, prefill: int, outputs: int) -> Self:
        """One token of each answer and `prefill` prompt tokens, at most `most` rows in total.

        At most `outputs` rows give logits; `outputs` must be at least the number of slots.

        Advances the slots' `evaluated`. Rows are in the order of their sequences, as llama.cpp requires.
        """
        batch = cls()
        needs = [len(slot.tokens) - slot.evaluated for slot in slots if not slot.answering]
        # Each answering stream takes one row of the batch; the prompts share the others.
        room = shares(min(prefill, most - len(slots) + len(needs)), needs)
        parts = iter(_limit_outputs([slot for slot in slots if not slot.answering], room, outputs - len(slots)))
        for slot in slots:
            batch._add(slot, 1 if slot.answering else next(parts))
        return batch

    def _add(self, slot: Slot, count: int) -> None:
        start, end = slot.evaluated, slot.evaluated + count
        if not count:
            return
        first = len(self.tokens)
        self.tokens.extend(slot.tokens[start:end])
        self.positions.extend(range(start, end))
        self.sequences.extend([slot.sequence] * count)
        self.outputs.extend([0] * count)
        self.slots.append(slot)
        slot.evaluated = end
        self.prompt_tokens += 0 if slot.answering else count
        # Usually only the last token's logits are wanted: they choose the first token of the answer.
        for position in range(max(start, slot.first_output), end):
            self.outputs[first + position - start] = 1
            self.sampled.append((slot, first + position - start))
        self.generated += end == len(slot.tokens) and slot.generates


def _limit_outputs(slots: Sequence[Slot], parts: Sequence[int], room: int) -> list[int]:
    """The parts of the prompts, cut so that at most `room` rows give logits, not counting one row for each slot."""
    wanted = [
        slot.evaluated + part - max(slot.first_output, slot.evaluated) for slot, part in zip(slots, parts, strict=True)
    ]
    excess = [max(0, outputs - 1) for outputs in wanted]
    if sum(excess) <= room:
        return list(parts)
    given = shares(room, excess)
    return [part - more + got for part, more, got in zip(parts, excess, given, strict=True)]


def shares(room: int, needs: Sequence[int]) -> list[int]:
    """Equal shares of `room`, with unused parts given to others, so that a long prompt does not delay short ones."""
    given = [0] * len(needs)
    order = sorted(range(len(needs)), key=needs.__getitem__)
    # Serve the smallest need first: the rest of a short prompt's share goes to the longer ones.
    for done, number in enumerate(order):
        given[number] = min(needs[number], room // (len(needs) - done))
        room -= given[number]
    return given
