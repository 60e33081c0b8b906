"""A recorded load in Mooncake's row format -> a load of the simulation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bench.instances.job import Job
from bench.instances.prompts import BLOCK_TOKENS
from bench.instances.server_model import QWEN_32B
from bench.instances.simulation import Load
from tg_picker.core import Fingerprint

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


_Count = Annotated[int, Meta(ge=0)]


class _Row(msgspec.Struct):
    """A request: milliseconds on any clock, tokens, and one id for each block and all before it."""

    timestamp: Annotated[float, Meta(ge=0)]
    input_length: _Count
    output_length: _Count
    hash_ids: list[_Count]


def replay(trace: Trace, speed: float, seconds: float) -> Load:
    """The rows that come in the first `seconds` of a replay at `speed` times their pace, from the first row on.

    Raises:
        ValueError: the file cannot be read, the speed is not above 0, or a line is no row: with file and line.
    """
    if not speed > 0:
        raise ValueError(f"a trace cannot be replayed at {speed:g} times its pace")
    rows = _read(trace.path)
    began = min(row.timestamp for row in rows)
    arrivals = sorted(((row.timestamp - began) / 1000 / speed, at) for at, row in enumerate(rows))
    jobs = [_job(rows[at], arrival, trace.objective) for arrival, at in arrivals if arrival < seconds]
    # The share of a run that is not counted is one of the trace, which may be shorter than what was asked for.
    return Load([QWEN_32B] * trace.servers, min(seconds, jobs[-1].arrival), jobs)


def _read(path: Path) -> list[_Row]:
    rows: list[_Row] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    rows.append(_parse(line, f"{path}, line {number}"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not rows:
        raise ValueError(f"{path} has no rows; each is a line of JSON")
    return rows


def _parse(line: bytes, place: str) -> _Row:
    try:
        return msgspec.json.decode(line, type=_Row)
    except msgspec.DecodeError as error:
        raise ValueError(f"{place}: {error}") from None


def _job(row: _Row, arrival: float, objective: float) -> Job:
    per_id = ROW_BLOCK_TOKENS // BLOCK_TOKENS
    blocks = [per_id * each + part for each in row.hash_ids for part in range(per_id)]
    tokens = max(row.input_length, 1)
    prefix = Fingerprint(tuple(blocks[: tokens // BLOCK_TOKENS]))
    return Job(arrival, tokens, max(row.output_length, 1), objective, None, prefix)
