"""[routes] -> log: which models of a route lack a feature of its first one, so that some requests pass them over."""

from contextlib import suppress

import structlog

from tg_base.config import Config
from tg_flow.providers.bound_models import open_model
from tg_flow.providers.registry import outline_provider
from tg_schema import TgError

log = structlog.get_logger()


async def warn_of_lacks(config: Config) -> None:
    """Compare what the models' providers announce with these options. No model is opened."""
    for name, plan in config.plans.items():
        features = {}
        for model in filter(None, (queue.model for queue in plan.queues if queue.model in config.models)):
            # What is wrong with the model is reported where it is opened.
            with suppress(TgError):
                features[model] = (await open_model(config, model, outline_provider)).features
        first = next(iter(features.values()), frozenset())
        for model, others in features.items():
            if lacks := first - others:
                log.warning(
                    "route.lacks", route=name, model=model, lacks=sorted(lacks), at=config.where("routes", name)
                )
