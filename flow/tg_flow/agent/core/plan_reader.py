"""Model's text -> events of a plan. A plan that is written in JSON becomes a numbered list."""

import re
from typing import Any

from typing_extensions import override

from tg_flow.agent.core.calling import Reader
from tg_flow.agent.parsing import Event, ReactParser, TextDelta, object_of
from tg_schema import TextCompletionResponse

_BEGINS = re.compile(r"[`{\[]|\Z")
_JSON = re.compile(r"(?:```\w*\s*)?([{\[].*[}\]])\s*(?:```)?(.*)", re.DOTALL)
_NAMES = ("step", "description", "task", "goal", "action", "title", "name")
"""Names that models use for the text of a step."""


class PlanReader(Reader):
    """Parses a plan. From the first sign of JSON on, the text is held back until the end of the turn."""

    def __init__(self, parser: ReactParser) -> None:
        super().__init__(parser)
        self._held: list[str] = []

    @override
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        return [event for each in super().feed(record) for event in self._pass(each)]

    @override
    def end(self) -> list[Event]:
        events = [event for each in super().end() for event in self._pass(each)]
        return [*events, TextDelta("answer", list_steps("".join(self._held)))] if self._held else events

    def _pass(self, event: Event) -> list[Event]:
        if not isinstance(event, TextDelta) or event.kind != "answer":
            return [event]
        text = event.text
        found = None if self._held else _BEGINS.search(text)
        start = 0 if found is None else found.start()
        self._held += [text[start:]] if text[start:] else []
        return [TextDelta("answer", text[:start])] if start else []


def list_steps(text: str) -> str:
    """A plan in JSON as a numbered list, followed by the text after it; any other text unchanged."""
    found = _JSON.fullmatch(text)
    value = None if found is None else object_of(f'{{"plan":{found[1]}}}')
    if found is None or value is None:
        return text
    steps = [_describe(item) for item in _find_items(value["plan"])]
    listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return f"{listed}\n{found[2].strip()}".rstrip() if steps and all(steps) else text


def _find_items(plan: Any) -> list[Any]:
    items = plan if isinstance(plan, list) else next((each for each in plan.values() if isinstance(each, list)), [])
    return list(items)


def _describe(item: Any) -> str:
    """A step on one line; "" = the step has no text."""
    texts = (item.get(name) for name in _NAMES) if isinstance(item, dict) else (item,)
    return " ".join(next((text for text in texts if isinstance(text, str)), "").split())
