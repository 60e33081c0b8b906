"""What a pick costs in a large pool. `python -m bench.instances --picks` has the figures."""

from statistics import median

from bench.instances.picks import measure_policy


def test_a_pick_among_a_hundred_servers_takes_its_time_at_most() -> None:
    """Half of the picks should take 150 us at most; twice that where other work shares the processor's caches."""
    assert min(median(measure_policy("predicted-wait", 800)) for _ in range(3)) <= 2 * 150_000
