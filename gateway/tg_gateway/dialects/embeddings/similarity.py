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
        lefts: texts of the first list; they come first. One is paired with all of the second.
        rights: texts of the second list.

    Attributes:
        scores: one for each of `rights`, from -1 to 1; 0 for a vector of zeros.
    """

    def __init__(self, lefts: int, rights: int) -> None:
        self.scores = [0.0] * rights
        self._lefts = lefts
        self._only: Vector | None = None
        self._waiting: dict[int, Vector] = {}
        self._numbers = 0

    def take(self, number: int, vector: Vector) -> None:
        """The vector of a text, numbered through both lists.

        Raises:
            ProtocolError: it has not as many numbers as that of its pair.
            TooLarge: too many vectors wait.
        """
        if self._lefts > 1:
            self._pair(number % self._lefts, vector)
        elif number:
            self._compare(number - 1, vector)
        else:
            self._only = vector
            for place, other in self._waiting.items():
                self._score(place, vector, other)
            self._waiting.clear()

    def _compare(self, place: int, vector: Vector) -> None:
        """Compare with the only vector of the first list."""
        if self._only is None:
            self._keep(place, vector)
        else:
            self._score(place, self._only, vector)

    def _pair(self, place: int, vector: Vector) -> None:
        """Compare with the other vector of the same place."""
        if place in self._waiting:
            other = self._waiting.pop(place)
            self._numbers -= len(other)
            self._score(place, other, vector)
        else:
            self._keep(place, vector)

    def _keep(self, place: int, vector: Vector) -> None:
        """Keep a vector until its pair comes, as an array: a tuple would take four times as much memory."""
        self._numbers += len(vector)
        if self._numbers > MAX_WAITING_NUMBERS:
            self._waiting.clear()
            raise TooLarge("the vectors of these texts are too large to be compared; ask for fewer at a time")
        self._waiting[place] = array("d", vector)

    def _score(self, place: int, one: Vector, other: Vector) -> None:
        if len(one) != len(other):
            raise ProtocolError("the model's vectors differ in length; ask another model")
        length = math.hypot(*one) * math.hypot(*other)
        # By rounding, a vector may be a little more like itself than 1.
        self.scores[place] = max(-1.0, min(1.0, sum(map(mul, one, other)) / length)) if length else 0.0
