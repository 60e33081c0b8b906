"""Config -> errors of its routes: names that lead nowhere, in a circle, or to two things."""

from collections.abc import Iterator

from tg_base.config.model import Config
from tg_base.config.services import TextCompletionConfig, find_reached
from tg_schema.errors import BadRequest


def route_faults(config: Config) -> Iterator[BadRequest]:
    """All errors of `[routes]`, each with its position and remedy."""
    models = {bound.model for bound in config.bound(TextCompletionConfig).values() if not bound.plain}
    models -= config.model_routes.keys()
    known = models if config.source is None or not config.source.completed else None
    for name, table in config.model_routes.items():
        if name in config.models or name in config.gateway.aliases:
            what = "a model" if name in config.models else "an alias"
            yield config.fault(f'"{name}" is the name of {what} too; rename one of them', "routes", name)
        if bool(table.models) == bool(table.weights):
            yield config.fault(f'route "{name}" needs either models or weights; write one of them', "routes", name)
        for place, member in enumerate(table.members):
            keys = ("models", str(place)) if table.models else ("weights", member)
            if sentence := _find_fault(config, name, member, known):
                yield config.fault(sentence, "routes", name, *keys)
        if table.shadow is not None and known is not None and table.shadow not in known:
            yield config.fault(_unknown(table.shadow, known), "routes", name, "shadow")


def _find_fault(config: Config, name: str, member: str, known: set[str | None] | None) -> str:
    routes = config.model_routes
    if member in routes:
        reached = find_reached(member, {route: table.members for route, table in routes.items()})
        return f'the routes "{name}" and "{member}" lead to each other in a circle' if name in reached else ""
    if routes[name].models.count(member) > 1:
        return f'"{member}" is there twice; a request asks each model once'
    return _unknown(member, known) if known is not None and member not in known else ""


def _unknown(model: str, known: set[str | None]) -> str:
    listed = ", ".join(sorted(filter(None, known))) or "none"
    return f'no flow has the model "{model}"; known are {listed}. Add [flows.NAME] text-completion.model = "{model}"'
