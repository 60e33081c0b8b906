"""Records of an answer -> the same answer in other records, for the tests of everything that writes them."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from tg_schema import TextCompletionResponse


@st.composite
def splittings(draw: st.DrawFn, records: Sequence[TextCompletionResponse]) -> list[TextCompletionResponse]:
    """The same records: cut, then some neighbours joined, as the bus and a slow reader do."""
    size = draw(st.integers(8, 64))
    parts = [part for record in records for part in (record.cut(size) if draw(st.booleans()) else (record,))]
    told: list[TextCompletionResponse] = []
    while parts:
        length = draw(st.integers(1, 4))
        told += TextCompletionResponse.join(parts[:length])
        parts = parts[length:]
    return told


def interleave(draw: st.DrawFn, answers: Mapping[int, list[TextCompletionResponse]]) -> list[TextCompletionResponse]:
    """The records of several answers, each in its order."""
    left = {index: list(records) for index, records in answers.items()}
    told = []
    while left:
        index = draw(st.sampled_from(sorted(left)))
        told.append(left[index].pop(0))
        if not left[index]:
            del left[index]
    return told
