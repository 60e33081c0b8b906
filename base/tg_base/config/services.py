"""[flows.NAME] -> the services that a flow may bind: a table of each, in the order in which the gateway lists them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from typing_extensions import override

from tg_base.config.model import Config, Seconds, Section, ServiceConfig
from tg_schema import AGENT, PROMPT, TEXT_COMPLETION
from tg_schema.errors import BadRequest

AGENT_PATTERNS = "tokengrid.agent_patterns"
"""The group of entry points with which packages offer patterns, ours and others' alike."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""A key that TOML accepts without quotes."""


class TextCompletionConfig(ServiceConfig, frozen=True):
    """The text-completion service of a flow."""

    spec = TEXT_COMPLETION
    model: str | None = None
    """The name of a table of models, or of a route; required unless the processors are TrustGraph's (`plain`)."""

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        keys = ("flows", flow, TEXT_COMPLETION.name)
        if self.plain:
            return
        if self.model is None and config.completes(flow):
            return
        if self.model is None:
            yield config.fault(f'{TEXT_COMPLETION.name} needs a model: model = "NAME" of a table [models.NAME]', *keys)
        elif self.model not in {*config.models, *config.model_routes}:
            known = ", ".join(sorted({*config.models, *config.model_routes})) or "none"
            table = self.model if _BARE_KEY.fullmatch(self.model) else f'"{self.model}"'
            sentence = f'there is no model "{self.model}"; known are {known}. Add a table [models.{table}]'
            yield config.fault(sentence, *keys, "model")

    @property
    @override
    def bound_model(self) -> str | None:
        return self.model

    @override
    def find_queue(self, config: Config) -> int | None:
        model = config.models.get(self.model or "")
        return None if model is None else model.queue


class PromptConfig(ServiceConfig, frozen=True):
    """The prompt service of a flow."""

    spec = PROMPT

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        if not (self.plain or TEXT_COMPLETION.name in config.flows[flow] or config.completes(flow)):
            sentence = f'flow "{flow}" has prompts but no {TEXT_COMPLETION.name} to answer them; add it'
            yield config.fault(sentence, "flows", flow, PROMPT.name)


class AgentLimits(Section, frozen=True):
    """Limits of one dialog, which ends with an error when it exceeds one."""

    iterations: Annotated[int, msgspec.Meta(gt=0)] = 10
    """Model calls per loop: for the whole question, or for one step of a plan."""
    tokens: Annotated[int, msgspec.Meta(gt=0)] | None = None
    """Tokens of all prompts and answers together, if the provider reports usage."""
    seconds: Seconds = 600.0


class AgentConfig(ServiceConfig, frozen=True):
    """The agent of a flow."""

    spec = AGENT
    model: str | None = None
    """The model that the agent uses; None = the model of the flow's own text completion."""
    description: str = ""
    """The agent's strengths; read by the supervisors that may call it."""
    pattern: str = "react"
    """The reasoning pattern, unless the request names one."""
    tools: tuple[str, ...] | None = None
    """The names of its tools; None = all."""
    agents: tuple[str, ...] = ()
    """The flows whose agents a supervisor may call."""
    calling: Literal["auto", "native", "text"] = "auto"
    """How the model calls tools; auto = natively if its provider announces the feature."""
    hold: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 240
    """How many characters of text without `Thought:` or `Final Answer:` are held back, since a call that follows makes
    them a thought. Longer text is sent as the answer, as it comes; 0 = no text is held back."""
    instructions: str = ""
    """Instructions to the model in addition to the pattern's own prompt."""
    limits: AgentLimits = AgentLimits()

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        if not self.plain:
            keys = ("flows", flow, AGENT.name, "pattern")
            yield from config.find_unoffered(AGENT_PATTERNS, self.pattern, "pattern", "module:function", *keys)
            yield from self._faults_of_model(config, flow)
            yield from self._faults_of_tools(config, flow)
            yield from self._faults_of_agents(config, flow)

    def _faults_of_model(self, config: Config, flow: str) -> Iterator[BadRequest]:
        keys, thinks = ("flows", flow, AGENT.name), TEXT_COMPLETION.name
        if self.model is None and thinks not in config.flows[flow] and not config.completes(flow):
            yield config.fault(f'flow "{flow}" has an agent but no {thinks} to think with; add it', *keys)
        if self.model is not None and self.model not in {
            bound.model for bound in config.bound(TextCompletionConfig).values()
        }:
            sentence = f'no flow\'s {thinks} has the model "{self.model}"; bind it, or leave the model out'
            yield config.fault(sentence, *keys, "model")

    def _faults_of_tools(self, config: Config, flow: str) -> Iterator[BadRequest]:
        for index, tool in enumerate(self.tools or ()):
            if tool not in config.tools:
                sentence = f'there is no tool "{tool}"; known are {", ".join(sorted(config.tools)) or "none"}'
                yield config.fault(sentence, "flows", flow, AGENT.name, "tools", str(index))

    def _faults_of_agents(self, config: Config, flow: str) -> Iterator[BadRequest]:
        keys, team = ("flows", flow, AGENT.name), config.bound(AgentConfig)
        if self.pattern == "supervisor" and not self.agents:
            yield config.fault('a supervisor needs agents = ["FLOW", ...] that it may ask; add them', *keys)
        for index, agent in enumerate(self.agents):
            if agent not in team:
                sentence = f'flow "{agent}" has no agent; add one, or leave it out'
                yield config.fault(sentence, *keys, "agents", str(index))
            elif flow in find_reached(agent, {name: table.agents for name, table in team.items()}):
                sentence = f'the agents of "{flow}" and "{agent}" ask each other in a circle'
                yield config.fault(sentence, *keys, "agents", str(index))


def find_reached(start: str, named: Mapping[str, Iterable[str]]) -> set[str]:
    """A name, and all names that its table names, directly or indirectly: to find a circle."""
    # `found` also ends the search in a cycle, which is what the caller looks for.
    found, pending = set[str](), [start]
    while pending:
        if (name := pending.pop()) not in found:
            found.add(name)
            pending.extend(named.get(name, ()))
    return found


SERVICES: tuple[type[ServiceConfig], ...] = (TextCompletionConfig, PromptConfig, AgentConfig)
