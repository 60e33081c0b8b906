"""Work -> the names of its spans and of their attributes: OpenTelemetry's where it has any, and ours.

The names `gen_ai.*` are those of the conventions for generative AI in the package opentelemetry-semantic-conventions
0.66b2 (schema 1.44.0), which requirements.lock pins; a test compares them.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

AGENT_NAME: Final = "gen_ai.agent.name"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
OPERATION: Final = "gen_ai.operation.name"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
PROVIDER: Final = "gen_ai.provider.name"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
STREAM: Final = "gen_ai.request.stream"
TEMPERATURE: Final = "gen_ai.request.temperature"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOOL_NAME: Final = "gen_ai.tool.name"
CHAT: Final = "chat"
EMBEDDINGS: Final = "embeddings"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"

ERROR_TYPE: Final = "error.type"
METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
SERVER: Final = "server.address"
SERVICE_NAME: Final = "service.name"
STATUS: Final = "http.response.status_code"

ATTEMPT: Final = "tokengrid.attempt"
FLOW: Final = "tokengrid.flow"
KEY: Final = "tokengrid.key"
MODEL: Final = "tokengrid.model"
PROCESSOR: Final = "tokengrid.processor"
REQUEST: Final = "tokengrid.request"
STREAM_ID: Final = "tokengrid.stream"

OPERATIONS: Final = {"embed": EMBEDDINGS}
"""The conventions' names for the operations of a model; all others have our names."""
SERVICE_OPERATIONS: Final = {"agent": INVOKE_AGENT, "text-completion": ""}
"""The conventions' names for the work of a service; all others have their own names. "" = it has no span itself, but
its calls of a provider have."""
