"""Provider options + model -> EngineSizes: how much the engine does side by side."""

import msgspec


class EngineSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine makes room for.

    Attributes:
        slots: streams that each engine can generate side by side, so that one engine can take all that there are.
        engines: contexts with a thread of their own, over which streams are spread.
        context: tokens of prompt and answer for each slot.
        threads: threads that compute one step of one engine.
        batch: tokens evaluated in one step at most; raised to `slots` if below.
        waiting: requests that may wait for each engine while all its slots are busy.
        adapters: LoRA adapters in memory at most, for all engines together.
    """

    slots: int
    context: int
    engines: int = 1
    threads: int = 1
    batch: int = 512
    waiting: int = 256
    adapters: int = 4
