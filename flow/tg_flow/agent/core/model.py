"""Agent -> text completion: the agent's model, and how it calls tools."""

from tg_base.client import Client, Requestor
from tg_base.config import AgentConfig
from tg_flow.agent.core.calling import Calling, NativeCalling, TextCalling
from tg_flow.agent.core.prompts import AgentPrompts
from tg_schema import TextCompletionRequest, TextCompletionResponse

NATIVE_FEATURES = frozenset({"tools", "history"})
"""The features that a provider must announce for native tool calls."""

FEATURES_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for a provider's first announcement after a start."""


class AgentModel:
    """The model of one agent.

    Args:
        requestor: the requestor, which knows what the processors announce.
        llm: the client of its text completion.
        profile: the agent's configuration: how it calls tools (auto = natively, if every processor of the model's queue
            announces the features), and how much text it holds back.
        prompts: the agents' prompts; replaced as a whole when the configuration is edited.

    Attributes:
        hold: how many characters of unstructured text are held back before they count as the answer.
    """

    def __init__(
        self,
        requestor: Requestor,
        llm: Client[TextCompletionRequest, TextCompletionResponse],
        profile: AgentConfig,
        prompts: AgentPrompts,
    ) -> None:
        self.llm = llm
        self.prompts = prompts
        self.hold = profile.hold
        self._calling = profile.calling
        self._requestor = requestor

    async def calling(self) -> Calling:
        """How this model calls tools now."""
        announced = await self._find_features()
        native = announced >= NATIVE_FEATURES if self._calling == "auto" else self._calling == "native"
        if native:
            return NativeCalling(self.prompts, keeps_thinking="reasoning_turns" in announced, hold=self.hold)
        return TextCalling(self.prompts, can_stop="stop" in announced, hold=self.hold)

    async def _find_features(self) -> frozenset[str]:
        """The features that all of the model's processors announce; empty if none has announced any.

        If a route has several models, the first one with a processor counts.
        """
        # A plain peer announces nothing, so do not wait for it.
        if self.llm.route.plain:
            return frozenset()
        presence, queue = self._requestor.presence, self._requestor.routes.find_live(self.llm.route).request
        if not presence.is_unserved(queue):
            await presence.until_served((queue,), FEATURES_TIMEOUT_SECONDS)
        return self._requestor.admission.find(self._requestor.routes.find_live(self.llm.route).request).features
