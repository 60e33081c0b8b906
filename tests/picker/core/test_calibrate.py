"""Our rebuilt policies beside another scheduler, line by line: what it is told, and when a pick counts as agreed."""

import shlex
import sys
from pathlib import Path

from bench.instances.calibrate import Reference, compare

SCHEDULER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    def score(server):
        queues = [each["queued"] for each in asked["servers"]]
        spread = max(queues) - min(queues)
        queue = (max(queues) - server["queued"]) / spread if spread else 1
        prefix = server["matched_blocks"] / server["blocks"] if server["blocks"] else 0
        return 2 * queue + 2 * (1 - server["kv_usage"]) + WEIGHT * prefix
    most = max(map(score, asked["servers"]))
    print(json.dumps({"best": [each["name"] for each in asked["servers"] if score(each) == most]}), flush=True)
"""


def agreed(tmp_path: Path, weight: int) -> float:
    """The share of the picks that a scheduler of this weight for prefixes would make as well."""
    path = tmp_path / "scheduler.py"
    path.write_text(SCHEDULER.replace("WEIGHT", str(weight)))
    reference = Reference(f"{shlex.quote(sys.executable)} {shlex.quote(str(path))}", 131_072)
    compared = compare("weighted", "prefix", 1, 1.0, reference)
    reference.close()
    assert compared.picks > 100
    return compared.agreed / compared.picks


def test_the_same_rule_agrees_and_another_one_does_not(tmp_path: Path) -> None:
    assert agreed(tmp_path, 3) == 1.0
    assert agreed(tmp_path, 0) < 0.9
