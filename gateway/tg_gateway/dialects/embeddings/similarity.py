"""Vectors of two lists of texts -> how similar their pairs are."""

import math
from array import array
from operator import mul
from typing import Final

from tg_gateway.dialects.embeddings.vectors import Vector
from tg_schema.errors import ProtocolError, TooLarge

MAX_WAITING_NUMBERS: Final = 8 * 1024 * 1024
"""The most numbers of all vectors that wait for their pairs: 64 MiB."""


class PairScores:
    """The cosine of the angle between the vectors of each pair; a vector is kept until its pairs are scored.

    Args:
        lefts: how many texts the first list has; they come first. A single one is paired with all of the second list.
        rights: texts of the second list.

    Attributes:
        scores: one for each of `rights`, from -1 to 1; 0 for a vector of zeros.
    """

    def __init__(self, lefts: int, rights: int) -> None:
        self.scores = [0.0] * rights
        self._lefts = lefts
        self._waiting: dict[int, Vector] = {}
        self._numbers = 0

    def take(self, number: int, vector: Vector) -> None:
        """The vector of a text, numbered through both lists.

        Raises:
            ProtocolError: the vectors of a pair differ in length.
            TooLarge: too many vectors wait.
        """
        self._keep(number, vector)
        for left, right in self._list_pairs(number):
            if left in self._waiting and right in self._waiting:
                self._score(right - self._lefts, self._waiting[left], self._waiting[right])
                # If the first list has only one text, its vector waits on for the rest of the second list.
                for scored in (right,) if self._lefts == 1 else (left, right):
                    self._numbers -= len(self._waiting.pop(scored))

    def _list_pairs(self, number: int) -> list[tuple[int, int]]:
        """The numbers of the pairs that this text may complete."""
        if self._lefts == 1:
            return [(0, right) for right in ({number} if number else self._waiting.keys() - {0})]
        left = number % self._lefts
        return [(left, left + self._lefts)]

    def _keep(self, number: int, vector: Vector) -> None:
        """Keep a vector until its pair comes, as an array: a tuple would take four times as much memory."""
        self._numbers += len(vector)
        if self._numbers > MAX_WAITING_NUMBERS:
            self._waiting.clear()
            raise TooLarge("the vectors of these texts are too large to be compared; ask for fewer at a time")
        self._waiting[number] = array("d", vector)

    def _score(self, place: int, one: Vector, other: Vector) -> None:
        if len(one) != len(other):
            raise ProtocolError("the model's vectors differ in length; ask another model")
        length = math.hypot(*one) * math.hypot(*other)
        # Because of rounding, a vector's similarity to itself may be slightly above 1.
        self.scores[place] = max(-1.0, min(1.0, sum(map(mul, one, other)) / length)) if length else 0.0
