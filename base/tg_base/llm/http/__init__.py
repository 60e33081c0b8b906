"""Provider's HTTP answer -> chunks: reading, limits, failures. What needs aiohttp is not on this face."""

from tg_base.llm.http.json_lines import JsonLines
from tg_base.llm.http.response import NO_FAILURES, ErrorDetail, Failures, HttpAnswer, open_body, read_whole_body
from tg_base.llm.http.sdk_provider import UNREADABLE, SdkOptions, SdkProvider, SdkWire
from tg_base.llm.http.stream_reader import MAX_EVENT_BYTES, event_chunks
from tg_base.llm.http.usage_deltas import Counts, UsageDeltas

__all__ = [
    "MAX_EVENT_BYTES",
    "NO_FAILURES",
    "UNREADABLE",
    "Counts",
    "ErrorDetail",
    "Failures",
    "HttpAnswer",
    "JsonLines",
    "SdkOptions",
    "SdkProvider",
    "SdkWire",
    "UsageDeltas",
    "event_chunks",
    "open_body",
    "read_whole_body",
]
