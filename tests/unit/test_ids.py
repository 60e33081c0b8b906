"""Names of their own: unlike each other, and the same again from the same source."""

import random
from collections.abc import Iterator

import pytest

from tg_base.telemetry import new_id, new_number
from tg_base.telemetry.trace import Ids, child, set_source


@pytest.fixture(autouse=True)
def own_source() -> Iterator[None]:
    yield
    set_source(Ids())


def test_no_name_comes_twice() -> None:
    names = {new_id() for _ in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {32}
    assert len(new_id(6)) == 12
    assert new_number() < new_number()


def test_a_source_of_ones_own_gives_the_same_names_again() -> None:
    def names() -> tuple[str, object, int]:
        set_source(Ids(random.Random(7).randbytes))
        return new_id(), child("s"), new_number()

    assert names() == names()
