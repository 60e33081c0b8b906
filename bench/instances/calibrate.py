"""Our rebuilt policies beside the reference's own scheduler, in lock step on the same trace: how often they agree.

nice python -m bench.instances.calibrate --against COMMAND

COMMAND drives the reference's scheduler: a program of the reader's own that imports it. For each line of JSON on its
standard input, {"policy", "model", "servers": [{"name", "queued", "running", "kv_usage", "slots", "active", "waiting",
"in_flight_tokens", "uncached_tokens", "matched_blocks", "blocks"}]}, it answers a line {"best": [names]}: the servers
with the highest score. So ties are set aside: a pick agrees if it is one of them.
"""

import argparse
import json
import shlex
import subprocess
from random import Random

from bench.instances.baselines.policies import ALL_POLICIES
from bench.instances.loads import LOADS
from bench.instances.prompts import BLOCK_TOKENS
from bench.instances.simulation import Simulation
from tg_picker.core import Choice, Fingerprint, Refusal, SchedulingContext, ServerState

MAX_MATCHED_TOKENS = 131_072
"""Of a prompt, as the reference matches them (5.6); up to its version 1.4 they were 4,096."""
POLICIES_TO_COMPARE = "weighted,weighted-lora,sticky-until-saturated"


class Reference:
    """A running command, asked line by line."""

    def __init__(self, command: str, max_matched_tokens: int) -> None:
        self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._max_blocks = max_matched_tokens // BLOCK_TOKENS

    def best(self, policy: str, context: SchedulingContext) -> list[str]:
        """The names of the servers that it would pick, by chance, one of."""
        request = context.request
        prefix = Fingerprint(request.prefix.blocks[: self._max_blocks])
        asked = {
            "policy": policy,
            "model": request.adapter or request.model,
            "servers": [_seen(server, prefix, request.prompt_tokens) for server in context.servers],
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline())["best"])

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=10)


def _seen(server: ServerState, prefix: Fingerprint, prompt_tokens: int) -> dict[str, object]:
    report, matched = server.report, server.prefixes.match(prefix)
    adapters = None if report is None else report.adapters
    return {
        "name": server.endpoint.name,
        "queued": server.queued,
        "running": 0 if report is None else report.running or 0,
        "kv_usage": server.kv_usage,
        "slots": 0 if adapters is None else adapters.slots or 0,
        "active": [] if adapters is None else sorted(adapters.active),
        "waiting": [] if adapters is None else sorted(adapters.waiting),
        "in_flight_tokens": server.uncached_tokens,
        "uncached_tokens": prompt_tokens - BLOCK_TOKENS * matched,
        "matched_blocks": matched,
        "blocks": len(prefix.blocks),
    }


class Compared:
    """A policy of ours that decides, and asks the reference what it would have picked."""

    def __init__(self, name: str, reference: Reference) -> None:
        self._name, self._policy, self._reference = name, ALL_POLICIES[name](), reference
        self.picks = self.agreed = 0

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        """As ours does."""
        best = self._reference.best(self._name, context)
        made = self._policy.choose(context)
        if isinstance(made, Choice):
            self.picks += 1
            self.agreed += made.server.endpoint.name in best
        return made


def compare(name: str, load: str, seed: int, seconds: float, reference: Reference) -> Compared:
    """Run a load at its hard rate under a policy of ours."""
    compared, kind = Compared(name, reference), LOADS[load]
    made = kind.make(Random(f"{load} {seed}"), kind.hard, kind.stretch * seconds)
    Simulation(made, compared, "always", seed, 0.0).run()
    return compared


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, help="command that drives the reference")
    parser.add_argument("--policies", default=POLICIES_TO_COMPARE)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--max-matched-tokens", type=int, default=MAX_MATCHED_TOKENS)
    asked = parser.parse_args()
    reference = Reference(asked.against, asked.max_matched_tokens)
    print("| load | policy | picks | agree, % |\n|---|---|---|---|")
    for load in asked.loads.split(","):
        for name in asked.policies.split(","):
            made = compare(name, load, asked.seed, asked.seconds, reference)
            print(f"| {load} | {name} | {made.picks} | {100 * made.agreed / max(made.picks, 1):.2f} |", flush=True)
    reference.close()


if __name__ == "__main__":
    _main()
