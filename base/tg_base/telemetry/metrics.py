"""All metrics and their names; one registry for each process, served at `/metrics`."""

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from tg_base.telemetry.histogram import LightHistogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_FINE = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1)

FIRST_TOKEN_SECONDS = LightHistogram("tg_first_token_seconds", "Request to first content", "service", _SECONDS)
CHUNK_GAP_SECONDS = LightHistogram("tg_chunk_gap_seconds", "Between two chunks of a stream", "service", _SECONDS)
QUEUE_WAIT_SECONDS = Histogram(
    "tg_queue_wait_seconds", "Request published to work begun", ["service"], buckets=_SECONDS
)
OVERHEAD_SECONDS = LightHistogram("tg_overhead_seconds", "A chunk's time in the gateway", "service", _FINE)
TOKENS = Counter("tg_tokens_total", "Tokens counted by the provider", ["model", "direction"])
ACTIVE_STREAMS = Gauge("tg_active_streams", "Requests worked on now", ["service"])
STREAMS = Counter("tg_streams_total", "Requests ended, by how: ok, cancelled or an error type", ["service", "outcome"])
ATTEMPTS = Counter("tg_attempts_total", "Further attempts at a request whose processor died", ["service"])
RESENDS = Counter("tg_resends_total", "Gaps in a link that were asked for again", [])
POISON = Counter("tg_poison_messages_total", "Messages that nobody can read or is to have", ["topic"])
SPANS = Counter("tg_spans_total", "Spans, by what became of them: exported, failed or dropped", ["outcome"])
READER_ENDS = Counter("tg_reader_ends_total", "Subscriptions that ended by themselves, to be opened again", [])
REFUSALS = Counter("tg_refusals_total", "Requests refused unasked, by reason", ["service", "reason"])
BAND = Counter("tg_band_total", "Requests that waited on the bus, by what became of them", ["service", "event"])
BAND_MADE = Gauge("tg_band_made", "Requests that waited on the bus and are asked for now", ["service"])
WARM = Counter("tg_warm_requests_total", "Requests sent past the queue by their cache key", ["service", "event"])
USAGE_LOST = Counter("tg_usage_lost_total", "Records of usage that the bus did not take and no room was left for", [])
TASKS = Gauge("tg_tasks", "Tasks on the event loop now")

# Looked up once: for each request, the client library would take a lock and 3 us.
find_stream_counter = cache(STREAMS.labels)
find_token_counter = cache(TOKENS.labels)
