"""Every promise of docs/promises.md has a proof in tests/PROOFS.md that is there, and figures are those of the code."""

import re
from pathlib import Path

import pytest

from tests.connected.test_broker_absence import ABSENCE_SECONDS, LATEST_SECONDS
from tests.connected.test_broker_under_streams import BOUND_SECONDS
from tests.connected.test_starved_burst import BURST, CAPACITY
from tests.simulation.judge import END, SLACK
from tests.simulation.test_simulation import SEEDS
from tg_base.bus.pulsar.consumer import READER_QUEUE_MESSAGES
from tg_base.client.response_stream import MAX_BUFFERED_BYTES
from tg_base.llm.service import MAX_RETRY_PAUSE_SECONDS
from tg_base.protocol import HeartbeatTiming
from tg_base.protocol.link_sender import MAX_UNACKED_BYTES, MAX_UNACKED_MESSAGES
from tg_base.protocol.request_headers import FRESH_SECONDS
from tg_gateway.access import Limits
from tg_gateway.relay.other_gateways import PART_SECONDS
from tg_schema.pieces import MAX_EVENT_BYTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text("utf-8")
PROOFS_PAGE = (ROOT / "tests" / "PROOFS.md").read_text("utf-8")
ROWS, PROOF_ROWS = (
    [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)] for page in (PAGE, PROOFS_PAGE)
)
COUNT = 71
RANGES_OF_CI = [
    range(int(first), int(first) + int(count))
    for count, first in re.findall(
        r"--seeds (\d+) --first (\d+)\b(?! --worlds)", (ROOT / ".ci" / "run").read_text("utf-8")
    )
]
SEEDS_OF_CI = sum(map(len, RANGES_OF_CI))
KIB = 1024
MIB = 1024 * KIB
LIMITS = Limits()
FIGURES = [
    (1, f"within {BOUND_SECONDS:g} s after the kill"),
    (
        5,
        (
            f"at most {MAX_UNACKED_MESSAGES} messages on the way, far below the consumer's queue of "
            f"{READER_QUEUE_MESSAGES:,}"
        ),
    ),
    (5, f"and at most {MAX_UNACKED_BYTES // MIB} MiB. A dropped"),
    (6, f"At most {MAX_BUFFERED_BYTES // MIB} MiB of a stream's records"),
    (6, f"{LIMITS.socket_bytes // MIB} MiB of all streams of one WebSocket"),
    (6, f"After {LIMITS.write:g} s without reading"),
    (11, f"up to {MAX_RETRY_PAUSE_SECONDS:g} s"),
    (22, f"after {LIMITS.head:g} s without a whole head"),
    (22, f"after {LIMITS.body:g} s without a whole body"),
    (23, f"the limit of {LIMITS.sockets:,}"),
    (40, f"a burst of {BURST} on {CAPACITY} slots"),
    (43, f"away for {ABSENCE_SECONDS:g} s | "),
    (43, f"within {LATEST_SECONDS:g} s after the broker is back"),
    (46, f"at most {MAX_EVENT_BYTES // KIB} KiB"),
    (52, f"within {END:g} s after the last sign of life or the last fault (looked at to {SLACK:g} s)"),
    (52, f"{SEEDS + SEEDS_OF_CI:,} seeds"),
    (54, f"after {LIMITS.silence:g} s"),
    (71, f"after {PART_SECONDS:g} s"),
]
"""Row, and what it says; tests of these rows run with shorter limits."""
PROOFS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE + PROOFS_PAGE)))


def test_every_scenario_has_its_row_and_its_proof() -> None:
    for rows in (ROWS, PROOF_ROWS):
        assert [int(row.split("|")[1]) for row in rows] == list(range(1, COUNT + 1))
    for row in PROOF_ROWS:
        assert re.search(r"`tests/[\w/]+\.py::\w+`|does not apply", row), row


@pytest.mark.parametrize(("file", "name"), PROOFS)
def test_every_proof_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("row", "said"), FIGURES)
def test_the_figures_are_the_codes_own(row: int, said: str) -> None:
    assert said in ROWS[row - 1]


def test_ci_tries_the_seeds_that_follow_those_of_the_tests() -> None:
    assert [each.start for each in RANGES_OF_CI] == [SEEDS, *(each.stop for each in RANGES_OF_CI[:-1])]
    simulation = (ROOT / "tests" / "simulation" / "README.md").read_text("utf-8")
    assert f"runs {SEEDS} seeds, and `.ci/run` the next {SEEDS_OF_CI:,}" in simulation


def test_the_figures_around_the_table_are_the_codes_own() -> None:
    assert HeartbeatTiming().interval == 1
    assert f"send each second. After {HeartbeatTiming().dead_after:g} s without one a peer is" in PAGE
    assert f"waited for more than {FRESH_SECONDS:g} s" in PAGE
    assert f"All {COUNT} guarantees" in (ROOT / "README.md").read_text("utf-8")


def test_memory_of_a_socket_is_the_measured_one() -> None:
    figures = (ROOT / "bench" / "README.md").read_text("utf-8")
    (measured,) = re.findall(r"\*\*([\d.]+ KiB) for each idle socket", figures)
    assert f"| {measured} of the gateway's memory each, as measured with `bench/sockets.py`" in ROWS[22]
