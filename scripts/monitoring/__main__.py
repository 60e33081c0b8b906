"""`python -m scripts.monitoring` writes deploy/ anew."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from scripts.monitoring.alert_rules import make_rules
from scripts.monitoring.dashboards import DASHBOARDS
from scripts.monitoring.promql import TABLES
from tg_base.telemetry import Label

FOLDER: Final = Path(__file__).parents[2] / "deploy"
_BY: Final = "`make deploy` from the tables of metrics"


def make_files() -> dict[str, str]:
    """Path below deploy/ -> text."""
    drawn = {f"grafana/{each.title.lower()}.json": each.draw() for each in DASHBOARDS}
    return {
        **{path: json.dumps(dashboard, indent=1) + "\n" for path, dashboard in drawn.items()},
        "prometheus/rules.yaml": f"# Made by {_BY}.\n" + yaml.safe_dump(make_rules(), sort_keys=False, width=4096),
        "METRICS.md": "\n".join(_list_metrics()) + "\n",
    }


def _list_metrics() -> Iterator[str]:
    yield f"# Metrics\nMade by {_BY}. What to do about them is in the [runbook](RUNBOOK.md).\n"
    yield "Those of pools are [explained](../picker/docs/instances.md#what-is-to-be-seen), with their older names."
    for title, table in TABLES.items():
        yield f"\n## Of the {title}\n| metric | kind | labels | what |\n|---|---|---|---|"
        for row in table.rows:
            labels = ", ".join(f"`{name}`" for name in row.label_names)
            yield f"| `{row.name}` | {row.kind} | {labels} | {row.text} |"
    yield "\n## Labels\nOf each label marked with a number, a process shows the first so many values, each cut to 100"
    yield "characters. All further ones share the value `other`.\n\n| label | values | at most |\n|---|---|---|"
    found: dict[str, Label] = {}
    for table in TABLES.values():
        for row in table.rows:
            for label in row.labels:
                found.setdefault(label.name, label)
    for name, label in sorted(found.items()):
        yield f"| `{name}` | {label.values} | {label.most or ''} |"


if __name__ == "__main__":
    for path, text in make_files().items():
        (FOLDER / path).write_text(text, "utf-8")
