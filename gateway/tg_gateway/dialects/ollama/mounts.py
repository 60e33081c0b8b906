"""Where Ollama's clients find us: `OLLAMA_HOST` is `http://HOST:PORT`."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.ollama.dialect import OLLAMA

OLLAMA_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/api/chat", OLLAMA, "chat", large=True),
    Mount("POST", "/api/generate", OLLAMA, "generate", large=True),
    Mount("POST", "/api/embed", OLLAMA, "embed", large=True),
    Mount("POST", "/api/embeddings", OLLAMA, "embed-one", large=True),
    Mount("GET", "/api/tags", OLLAMA, "tags"),
    Mount("POST", "/api/show", OLLAMA, "show"),
    Mount("GET", "/api/ps", OLLAMA, "ps"),
    Mount("GET", "/api/version", OLLAMA, "version"),
    Mount("POST", "/api/pull", OLLAMA, "pull"),
    Mount("POST", "/api/push", OLLAMA, "push"),
    Mount("POST", "/api/create", OLLAMA, "create"),
    Mount("POST", "/api/copy", OLLAMA, "copy"),
    Mount("DELETE", "/api/delete", OLLAMA, "delete"),
    Mount("POST", "/api/blobs/{digest}", OLLAMA, "create"),
    Mount("HEAD", "/api/blobs/{digest}", OLLAMA, "create"),
)
