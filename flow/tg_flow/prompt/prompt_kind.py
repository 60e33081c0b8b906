"""[flows.NAME.prompt] -> running processors: one for each flow that has prompts."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace

from typing_extensions import override

from tg_base.client import Client, Requestor
from tg_base.config import Config, Findings, PromptConfig
from tg_base.server import Opened, ServeContext, ServiceKind
from tg_flow.prompt.prompt_service import PromptService
from tg_flow.prompt.prompt_template import Templates, check_templates
from tg_schema import TEXT_COMPLETION


class PromptKind(ServiceKind):
    """Runs the prompt service, and follows edits of the templates and of the flows."""

    table = PromptConfig

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        config = context.config
        templates = Templates.of(config)
        completions = {route.flow: route for route in config.routes(TEXT_COMPLETION.name)}
        queues = tuple({route.request for route in completions.values() if not route.plain})
        requestor = Requestor(context.bus, config.topics, queues=queues, timing=context.timing, plans=config.plans)
        services = {
            route: PromptService(Client(requestor, completions[route.flow], bounded=True), templates)
            for route in self.routes(config)
        }

        def use(edited: Templates) -> None:
            for service in services.values():
                service.templates = edited

        stack.enter_context(context.follow_part(Templates.of, use))
        # Keep plans that an edit removes: services use them until they are replaced, and running requests even longer.
        stack.enter_context(
            context.follow_part(lambda to: {**requestor.routes.named, **to.plans}, requestor.routes.replace)
        )
        await stack.enter_async_context(requestor)
        for route, service in services.items():
            yield Opened(service, (route,))

    @override
    def find_parts(self, config: Config) -> object:
        """The flows, and the routes of their text completion, without the models' names, which do not matter here."""
        bound, completions = config.bound(PromptConfig), config.routes(TEXT_COMPLETION.name)
        return bound, [replace(route, model=None) for route in completions if route.flow in bound]

    @override
    async def rehearse(self, context: ServeContext, findings: Findings) -> None:
        """Compile every template."""
        check_templates(context.config, findings)

    @override
    def summarize(self, config: Config) -> str:
        if not config.bound(PromptConfig):
            return "no flow has prompts"
        count = len(config.prompts.templates)
        return f"{count} template{'s' if count != 1 else ''}"
