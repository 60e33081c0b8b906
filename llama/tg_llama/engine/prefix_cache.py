"""Slot -> PrefixCache -> slot: evaluates only once the tokens that a prompt has in common with another sequence."""

from collections.abc import Container, Sequence
from typing import NamedTuple, Self, TypeAlias

from tg_llama.core import Context, State
from tg_llama.engine.slot import Slot

MIN_COPIED_TOKENS = 32
"""The fewest saved tokens that justify a copy; fewer are evaluated in the next step anyway."""
MIN_PRESERVED_TOKENS = 256
"""The fewest tokens worth moving to a free sequence before they are overwritten; fewer are soon evaluated again."""


_Owner: TypeAlias = tuple[int, str | None]
"""The number of the adapter that evaluated tokens (0 = none), and the caller. Callers do not share tokens: the reported
number of cached tokens would reveal other callers' prompts word by word."""


class _Remembered(NamedTuple):
    """The tokens that a free sequence still holds, and the owner who may use them.

    `end` counts ended streams: a lower number means older tokens.
    """

    owner: _Owner = (0, None)
    tokens: Sequence[int] = ()
    end: int = 0

    @classmethod
    def of(cls, slot: Slot, end: int) -> Self:
        return cls(_owner(slot), slot.tokens[: slot.evaluated], end)

    def common(self, slot: Slot) -> int:
        """How many tokens the slot's prompt and these tokens have in common, from the start."""
        return common_prefix(self.tokens, slot.tokens) if self.owner == _owner(slot) else 0

    def beside(self, slot: Slot) -> int:
        """How many of these tokens are not a prefix of the slot's prompt."""
        return len(self.tokens) - self.common(slot)


class PrefixCache:
    """The content of each sequence of a context; belongs to the engine's thread.

    A new slot keeps the prefix of its prompt that its own sequence still has, or gets a copy from a sequence with more.
    If a running stream is about to evaluate more of the prompt, the slot follows that stream: it waits for a copy.

    Streams occupy the first sequences, so a lone stream is always in sequence 0. The tokens that it would overwrite
    there are swapped with its own prefix, or moved to the free sequence with the oldest tokens. So as many chats as
    there are sequences can take turns and keep their prefixes.
    """

    def __init__(self, context: Context, sequences: int, *, divisible: bool) -> None:
        """`divisible` says whether a sequence's memory can be cut after a common prefix."""
        self._context = context
        self._divisible = divisible
        self._remembered = [_Remembered()] * sequences
        self._ends = 0

    def remember(self, slot: Slot) -> None:
        """Note that the slot has ended; its sequence keeps its tokens."""
        self._ends += 1
        self._remembered[slot.sequence] = _Remembered.of(slot, self._ends)

    def move(self, slot: Slot, target: int) -> None:
        """Move a stream to the sequence of an ended one, whose tokens go to the stream's old sequence."""
        source, held = slot.sequence, self._remembered[target]
        state = self._context.save(target) if self._divisible and len(held.tokens) >= MIN_PRESERVED_TOKENS else None
        self._context.copy(source, target)
        slot.sequence = target
        if state is None:
            # The sequence that it leaves still holds these tokens; a later prompt may begin with them.
            self._remembered[source] = _Remembered.of(slot, self._ends)
        else:
            self._restore(source, state, held)

    def begin(self, slot: Slot, running: Sequence[Slot]) -> None:
        """Set how many tokens of a new slot are already evaluated, and which slot it follows."""
        self._preserve(slot, running)
        # Tokens whose logits are wanted must be evaluated: the last one's logits choose the answer's first token.
        same = min(self._remembered[slot.sequence].common(slot), slot.first_output)
        slot.evaluated = slot.generation.cached = self._context.keep(slot.sequence, same)
        self._share(slot, running, {})

    def let_go_on(self, running: Sequence[Slot]) -> list[Slot]:
        """Copy the prefixes that followers wait for, once evaluated. Returns the slots that follow no other."""
        copies: dict[int, State] = {}
        for slot in running:
            leader = slot.follows
            if leader is not None and (_has_ended(leader) or leader.evaluated >= slot.awaited):
                slot.follows = None
                self._share(slot, running, copies)
        return [slot for slot in running if slot.follows is None]

    def _preserve(self, slot: Slot, running: Sequence[Slot]) -> None:
        """Move the tokens that a new slot would overwrite to a free sequence: that of its own prefix, or the oldest."""
        held = self._remembered[slot.sequence]
        if not self._divisible or held.beside(slot) < MIN_PRESERVED_TOKENS:
            return
        free = self._list_free(slot, running)
        source = self._find_prefix(slot, free)
        if source is not None and self._remembered[source].beside(slot) < MIN_PRESERVED_TOKENS:
            # Swap them: a copy would keep the same tokens twice, and overwrite another chat's.
            self._exchange(slot.sequence, source)
            return
        # Keep the source of this slot's prefix, which is copied next.
        targets = [number for number in free if number != source]
        oldest = min(targets, key=lambda number: self._remembered[number].end, default=slot.sequence)
        if self._remembered[oldest].end < held.end:
            self._restore(oldest, self._context.save(slot.sequence), held)

    def _find_prefix(self, slot: Slot, free: Sequence[int]) -> int | None:
        """The free sequence with the longest prefix of the prompt and least else; None = a copy is not worth it."""
        kept = self._remembered[slot.sequence].common(slot)
        held = [(self._remembered[number], number) for number in free]
        found = [(each.common(slot), -each.beside(slot), number) for each, number in held]
        most, _, source = max(found, default=(0, 0, 0))
        return source if most - kept >= MIN_COPIED_TOKENS else None

    def _exchange(self, one: int, other: int) -> None:
        states = self._context.save(one), self._context.save(other)
        first, second = self._remembered[one], self._remembered[other]
        self._restore(other, states[0], first)
        self._restore(one, states[1], second)

    def _restore(self, sequence: int, state: State, held: _Remembered) -> None:
        self._remembered[sequence] = held if self._context.restore(sequence, state) else _Remembered()

    def _list_free(self, slot: Slot, running: Sequence[Slot]) -> list[int]:
        """The sequences that neither this slot nor another stream uses."""
        used = {slot.sequence, *[other.sequence for other in running]}
        return [number for number in range(len(self._remembered)) if number not in used]

    def _share(self, slot: Slot, running: Sequence[Slot], copies: dict[int, State]) -> None:
        if not self._divisible or slot.first_output - slot.evaluated < MIN_COPIED_TOKENS:
            return
        most, source = self._find_copy(slot, running, copies)
        awaited, leader = _find_leader(slot, running)
        if leader is not None and awaited - max(most, slot.evaluated) >= MIN_COPIED_TOKENS:
            slot.follows, slot.awaited = leader, awaited
        elif most - slot.evaluated >= MIN_COPIED_TOKENS:
            self._copy(slot, source, most, copies)

    def _find_copy(self, slot: Slot, running: Sequence[Slot], copies: Container[int]) -> tuple[int, int]:
        """The most tokens that a copy can give, and the sequence to copy; at equal numbers, one already in `copies`."""
        others = [other for other in running if other.sequence != slot.sequence]
        found = [(min(_common(other, slot), other.evaluated), other.sequence) for other in others]
        free = [(self._remembered[number].common(slot), number) for number in self._list_free(slot, running)]
        most, source = max(found + free, key=lambda one: (one[0], one[1] in copies), default=(0, 0))
        return min(most, slot.first_output), source

    def _copy(self, slot: Slot, source: int, tokens: int, copies: dict[int, State]) -> None:
        state = copies.get(source) or self._context.save(source)
        copies[source] = state
        restored = self._context.restore(slot.sequence, state)
        copies.pop(slot.sequence, None)
        slot.evaluated = slot.generation.cached = self._context.keep(slot.sequence, tokens if restored else 0)


def _find_leader(slot: Slot, running: Sequence[Slot]) -> tuple[int, Slot | None]:
    """The stream that is about to evaluate most tokens of the slot's prompt, and how many both have in common."""
    awaited, leader = 0, None
    for other in running:
        # A slot that follows another is not followed, so no two slots wait for each other.
        if other is slot or other.answering or other.follows is not None or _has_ended(other):
            continue
        common = min(_common(other, slot), slot.first_output)
        if common > awaited:
            awaited, leader = common, other
    return awaited, leader


def _common(other: Slot, slot: Slot) -> int:
    return common_prefix(other.tokens, slot.tokens) if _owner(other) == _owner(slot) else 0


def _has_ended(slot: Slot) -> bool:
    return slot.done or slot.generation.cancelled


def _owner(slot: Slot) -> _Owner:
    return slot.adapter.number if slot.adapter else 0, slot.generation.caller


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two lists of tokens have in common, from the start."""
    low, high = 0, min(len(one), len(other))
    # Compare by bisection: slices compare in microseconds, single tokens take a hundred times as long.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
