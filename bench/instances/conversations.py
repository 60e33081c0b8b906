"""Loads of sessions: the next request comes when the last was answered."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.instances.job import Job
from bench.instances.prompts import extended, prompt
from bench.instances.server_model import QWEN_32B
from bench.instances.simulation import Load
from tg_picker.core import Fingerprint
from tg_picker.core.interface import NO_FINGERPRINT

SERVERS = 10
RAMP_SECONDS = 10.0
"""Over which the sessions begin."""
CODE_OBJECTIVE_SECONDS = 10.0
REASONING_OBJECTIVE_SECONDS = 1.0


@dataclass
class _Conversation:
    """Where one conversation stands: tokens so far, and turns to come."""

    name: int
    tokens: int = 0
    turns: int = 0
    prefix: Fingerprint = NO_FINGERPRINT


def code_generation(random: Random, rate: float, seconds: float) -> Load:
    """Conversations with a system prompt of their own.

    Published are minimum, maximum and mean. Taken here: uniform from 10,000 to 100,000 for the system prompt; 2 to 10
    turns, uniform; log-normal for turns (mean 1,500 in, 800 out).
    """
    conversations = [_Conversation(-1) for _ in range(int(rate))]
    begun = 0

    def turn(session: int, at: float) -> Job:
        nonlocal begun
        state = conversations[session]
        if not state.turns:
            begun += 1
            state.name, state.turns = begun, random.randrange(2, 11)
            state.tokens = random.randrange(10_000, 100_000)
            state.prefix = extended(NO_FINGERPRINT, ("c", begun), state.tokens)
        state.turns -= 1
        asked = _lognormal(random, 1_500, 100, 10_000)
        output = _lognormal(random, 800, 50, 4_000)
        tokens = state.tokens + asked
        prefix = extended(state.prefix, ("q", 100 * state.name + state.turns), tokens)
        answered = extended(prefix, ("o", 100 * state.name + state.turns), tokens + output)
        state.tokens, state.prefix = tokens + output, answered
        return Job(at, tokens, output, CODE_OBJECTIVE_SECONDS, None, prefix, answered, session=session)

    return _sessions(turn, random, int(rate), seconds)


def reasoning(random: Random, rate: float, seconds: float) -> Load:
    """250 shared system tokens, 1,000 in, 8,000 out on average.

    Scaled: a quarter of the tokens out, so that a run reaches its steady state; uniform from 250 to 3,750.
    """
    number = 0

    def turn(session: int, at: float) -> Job:
        nonlocal number
        number += 1
        prefix = prompt(("s", 0), 250, ("r", number), 1_000)
        return Job(at, 1_250, random.randrange(250, 3_750), REASONING_OBJECTIVE_SECONDS, None, prefix, session=session)

    return _sessions(turn, random, int(rate), seconds)


def _lognormal(random: Random, mean: float, least: int, most: int) -> int:
    return min(max(int(random.lognormvariate(0.0, 0.8) * mean / 1.377), least), most)


def _sessions(turn: Callable[[int, float], Job], random: Random, sessions: int, seconds: float) -> Load:
    starts = sorted(random.random() * RAMP_SECONDS for _ in range(sessions))
    jobs = [turn(session, at) for session, at in enumerate(starts)]
    return Load([QWEN_32B] * SERVERS, seconds, jobs, lambda job, now: turn(job.session, now))
