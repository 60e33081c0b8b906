"""Gateway -> client: one row of the list of models that can be asked."""

import msgspec


class ServedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that can be asked now.

    Attributes:
        model: the name to ask for.
        flow: whose text completion has it.
        features: what a request to it may need (`tg_schema.features`); empty = unknown, for a plain peer.
        alias_of: what the name stands for, if it is an alias.
        loading: whether a request waits until one of its processors has loaded it.
        running: requests that its flow's processors run now, as they announced within the last second or two.
        load: the share of their slots that is taken; None = all are free, or none is known.
    """

    model: str
    flow: str
    features: tuple[str, ...] = ()
    alias_of: str | None = None
    loading: bool = False
    running: int = 0
    load: float | None = None


class ServedModels(msgspec.Struct, frozen=True):
    """All of them, as `GET /api/v1/models` answers."""

    models: tuple[ServedModel, ...] = ()
