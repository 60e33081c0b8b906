"""A picker that goes where the test says, and what it was told of each request."""

import asyncio
from dataclasses import dataclass, field

from tg_picker.core import InstanceUsage
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.model_request import read_model_request, rename_model


@dataclass
class RecordedCourse:
    """What was told of one request."""

    told: list[object] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def served(self, address: str) -> None:
        """See `Course`."""
        self.told.append(("served", address))

    def respond(self, status: int, load: str) -> None:
        """See `Course`."""
        self.told.append(("respond", status, load))

    def begin(self) -> None:
        """See `Course`."""
        if "begin" not in self.told:
            self.told.append("begin")

    def end(self, usage: InstanceUsage | None) -> None:
        """See `Course`."""
        self.told.append(usage)
        self.over.set()


class ScriptedPicker:
    """A model called `refuse-NNN` is refused with that status, `other` is renamed to `base`."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.takes_list = True
        self.asked: list[Asked] = []
        self.courses: list[RecordedCourse] = []

    async def decide(self, asked: Asked) -> Directed | Refused:
        """See `Picker`."""
        self.asked.append(asked)
        model = ""
        if asked.body and asked.headers.get("content-type") == "application/json":
            model = read_model_request(asked.body).model
        if model.startswith("refuse-"):
            return Refused(int(model[7:]), "rejected-saturated", "all are busy", 2.0)
        self.courses.append(RecordedCourse())
        body = rename_model(asked.body, "base") if model == "other" and asked.body else None
        return Directed(self.addresses, self.courses[-1], body, self.takes_list)
