"""Attempts that nobody may begin: asked for as often as copies come, forgotten after their time, never too many."""

from tg_base.protocol import StreamKey
from tg_base.server.tombstones import MAX_TOMBSTONES, Tombstones


def test_each_copy_finds_an_attempt_until_its_time_is_over() -> None:
    now = 0.0
    it = Tombstones(lambda: now)
    key, other = StreamKey("s", 1), StreamKey("s", 2)
    it.add(key, 5.0)
    assert key in it, "the second copy"
    assert key in it, "the third one"
    assert other not in it
    now = 5.0
    it.sweep()
    assert key in it
    it.add(key, 5.0)
    now = 9.0
    it.add(other, 5.0)
    assert key in it, "cancelled again"
    now = 10.1
    it.sweep()
    assert [*it] == [other]


def test_of_too_many_the_oldest_is_forgotten() -> None:
    it = Tombstones(lambda: 0.0)
    for number in range(1, MAX_TOMBSTONES + 2):
        it.add(StreamKey("s", number), 600.0)
    assert len(it) == MAX_TOMBSTONES
    assert next(iter(it)) == StreamKey("s", 2)
