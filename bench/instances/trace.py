"""A recorded load in Mooncake's row format -> a load of the simulation."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.instances.job import Job
from bench.instances.prompts import BLOCK_TOKENS
from bench.instances.server_model import QWEN_32B
from bench.instances.simulation import Load
from tg_base.instances import Fingerprint

ROW_BLOCK_TOKENS = 512


@dataclass(frozen=True)
class Trace:
    """A file, and what replays it.

    Attributes:
        path: one JSON object a line.
        servers: of Qwen3-32B.
        objective: seconds to the first token.
    """

    path: Path
    servers: int
    objective: float


class _Row(msgspec.Struct):
    """A request: milliseconds since the beginning, tokens, and one id for each block and all before it."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def replay(trace: Trace, speed: float, seconds: float) -> Load:
    """The rows that come in the first `seconds` of a replay at `speed` times their pace."""
    jobs = []
    with trace.path.open("rb") as lines:
        for line in filter(bytes.strip, lines):
            row = msgspec.json.decode(line, type=_Row)
            arrival = row.timestamp / 1000 / speed
            if arrival < seconds:
                jobs.append(_job(row, arrival, trace.objective))
    return Load([QWEN_32B] * trace.servers, seconds, jobs)


def _job(row: _Row, arrival: float, objective: float) -> Job:
    per_id = ROW_BLOCK_TOKENS // BLOCK_TOKENS
    blocks = [per_id * each + part for each in row.hash_ids for part in range(per_id)]
    tokens = max(row.input_length, 1)
    prefix = Fingerprint(tuple(blocks[: tokens // BLOCK_TOKENS]))
    return Job(arrival, tokens, max(row.output_length, 1), objective, None, prefix)
