"""What processes and gateways tell each other costs as much for each of them, however many there are."""

from tests.simulation.presence_traffic import count_traffic

MAX_ANNOUNCEMENT_BYTES = 128
"""Of a process with one model in which nothing has changed."""
MAX_PAIR_BYTES = 400
"""A second, of a gateway and a process between which a stream runs: a heartbeat and a report."""


def test_forty_processes_and_forty_gateways() -> None:
    processes = gateways = 40
    links = 10
    rest, busy = count_traffic(processes, gateways, links)
    assert 0 < rest.announced <= MAX_ANNOUNCEMENT_BYTES
    assert (rest.heard, rest.asked) == (0.0, 0.0)
    assert rest.read == processes * rest.announced
    assert rest.given == gateways * rest.read
    pairs = links * gateways
    assert 0 < busy.taken - rest.taken <= pairs * MAX_PAIR_BYTES
    assert busy.given - rest.given <= pairs * MAX_PAIR_BYTES


def test_a_process_announces_to_twelve_gateways_what_it_does_to_one() -> None:
    (one, _), (twelve, _) = count_traffic(2, 1, 0), count_traffic(2, 12, 0)
    assert twelve.announced == one.announced
    assert twelve.heard == one.heard == 0.0
