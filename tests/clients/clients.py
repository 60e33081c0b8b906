"""The clients that are run, and where each comes from: a row or more of the table of README.md for each."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
MANIFESTS: Final = ("libraries.json", "opencode.json")
"""For npm: exact versions of packages that are installed together."""

ENVIRONMENTS: Final = {
    "frameworks": ("langchain-openai", "langchain-ollama", "pydantic-ai-slim[openai]", "openai-agents"),
    "libraries": ("instructor", "litellm", "llm", "huggingface-hub"),
    "llama-index": ("llama-index-llms-openai-like",),
    "aider": ("aider-chat",),
    "open-webui": ("open-webui",),
}
"""Python packages that are installed together, each group because its newest versions agree. No versions: those are in
locks/, which `python -m tests.clients --newest` resolves anew."""

LEFT_OUT: Final = {
    "open-webui": ("accelerate", "faster-whisper", "onnxruntime", "opencv-python-headless", "sentence-transformers",
                   "torch", "transformers"),
}  # fmt: skip
"""What an environment does not get, though its packages ask for it: 6 GB with which Open WebUI runs models itself."""

PYTHONS: Final = dict.fromkeys(("aider", "open-webui"), ">=3.11,<3.13")
"""The Pythons that an environment takes, where it does not take any."""


@dataclass(frozen=True)
class Client:
    """A client of others.

    Attributes:
        name: as the table has it.
        program: the file here that asks everything through it.
        package: whose version the table tells.
        environment: of `ENVIRONMENTS` or `MANIFESTS`.
        large: whether it takes hundreds of megabytes and minutes, so that `make test` leaves it out.
    """

    name: str
    program: str
    package: str
    environment: str
    large: bool = False

    @property
    def version(self) -> str:
        """The version that is locked."""
        if self.environment in MANIFESTS:
            version: str = json.loads((FOLDER / self.environment).read_text("utf-8"))["dependencies"][self.package]
            return version
        (found,) = re.findall(rf"^{self.package}==(\S+)", lock_of(self.environment).read_text("utf-8"), re.MULTILINE)
        return str(found)


def lock_of(environment: str) -> Path:
    """The versions of all packages of an environment."""
    return FOLDER / "locks" / f"{environment}.txt"


CLIENTS: Final = (
    Client("AI SDK", "ask_by_ai_sdk.mjs", "ai", "libraries.json"),
    Client("LangChain", "ask_by_langchain.py", "langchain-openai", "frameworks"),
    Client("LangChain.js", "ask_by_langchain.mjs", "@langchain/openai", "libraries.json"),
    Client("pydantic-ai", "ask_by_pydantic_ai.py", "pydantic-ai-slim", "frameworks"),
    Client("openai-agents", "ask_by_openai_agents.py", "openai-agents", "frameworks"),
    Client("instructor", "ask_by_instructor.py", "instructor", "libraries"),
    Client("LlamaIndex", "ask_by_llama_index.py", "llama-index-llms-openai-like", "llama-index"),
    Client("litellm", "ask_by_litellm.py", "litellm", "libraries"),
    Client("`llm`", "ask_by_llm.py", "llm", "libraries"),
    Client("`huggingface_hub`", "ask_by_hub_chat.py", "huggingface-hub", "libraries"),
    Client("aider", "ask_by_aider.py", "aider-chat", "aider", large=True),
    Client("Open WebUI", "ask_by_open_webui.py", "open-webui", "open-webui", large=True),
    Client("opencode", "ask_by_opencode.mjs", "opencode-ai", "opencode.json", large=True),
)
