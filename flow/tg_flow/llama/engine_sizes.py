"""Provider options + model -> EngineSizes: how much the engine does side by side."""

import msgspec


class EngineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine makes room for.

    Attributes:
        slots: streams that are generated side by side.
        context: tokens of prompt and answer for each slot.
        threads: threads that compute one step.
        batch: tokens evaluated in one step at most; raised to `slots` if below.
        waiting: requests that may wait while all slots are busy.
    """

    slots: int
    context: int
    threads: int = 1
    batch: int = 512
    waiting: int = 256
