"""Deadlines, liveness and limits run on monotonic clocks: who reads the clock on the wall, and for what."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("schema", "base", "flow", "gateway", "cli", "serve", "bedrock", "vertexai", "picker", "llama", "doors")
WALL = re.compile(
    r"\btime\.time(?:_ns)?\b|\bfrom time import (?:.*, )?time\b|"
    r"\bdatetime\.(?:now|utcnow|today)\(|\blocaltime\(|\bgmtime\("
)
READERS = {
    "base/tg_base/bus/pulsar/consumer.py",  # how old a message is: the broker's stamp is a wall clock's
    "base/tg_base/client/call_account.py",  # when a call was asked and ended, of its record of usage
    "base/tg_base/client/shared_time.py",  # gateways compare what each other's clocks say
    "base/tg_base/llm/core/errors.py",  # Retry-After as a date
    "base/tg_base/llm/guard.py",  # when the first content of a call came, of its record of usage
    "base/tg_base/llm/provider_call.py",  # when a call ended, of its record of usage
    "base/tg_base/llm/service.py",  # when a call began, of its record of usage
    "base/tg_base/server/processor.py",  # when a request was published, of its records of usage
    "base/tg_base/telemetry/ended_span.py",  # when a span ended
    "base/tg_base/telemetry/trace.py",  # when a span began
    "flow/tg_flow/usage/postgres_database.py",  # as the next one
    "flow/tg_flow/usage/usage_database.py",  # the hour of a call without a clock, and what is old
    "flow/tg_flow/usage/usage_service.py",  # "the last seven days"
    "base/tg_base/telemetry/model_loads.py",  # the value of vLLM's `lora_requests_info`
    "llama/tg_llama/chat/template_sandbox.py",  # templates that tell the model today's date
    "gateway/tg_gateway/dialects/embeddings/writers.py",  # the field `created`
    "gateway/tg_gateway/dialects/ollama/answer_shape.py",  # the field `created_at`
    "gateway/tg_gateway/dialects/chat/writers.py",  # the field `created`
    "gateway/tg_gateway/dialects/openai/completion_writers.py",  # the field `created`
    "gateway/tg_gateway/dialects/batches.py",  # `created_at`, and a deadline of a day
    "gateway/tg_gateway/dialects/responses/compaction.py",  # the field `created_at`
    "gateway/tg_gateway/dialects/responses/response_draft.py",  # the fields `created_at` and `completed_at`
    "gateway/tg_gateway/jobs/logs.py",  # how old a log is: other gateways made it
    "gateway/tg_gateway/jobs/pauses.py",  # a pause that other gateways are told of
    "gateway/tg_gateway/http/body_stream.py",  # the header Date
}


def test_only_these_files_read_it() -> None:
    files = [file for room in ROOMS for file in sorted((ROOT / room).glob("tg_*/**/*.py"))]
    assert len(files) > 80
    found = {str(file.relative_to(ROOT)) for file in files if WALL.search(file.read_text("utf-8"))}
    assert found == READERS
