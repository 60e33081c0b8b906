"""Provider's HTTP answer -> chunks: reading, limits, failures. What needs aiohttp is not on this face."""

from tg_base.llm.http.json_lines import JsonLines
from tg_base.llm.http.response import NO_FAILURES, Failures, HttpAnswer, Refusal, opened, whole_body
from tg_base.llm.http.sdk_provider import UNREADABLE, SdkOptions, SdkProvider, SdkWire
from tg_base.llm.http.stream_reader import LONGEST_EVENT, event_chunks
from tg_base.llm.http.usage_deltas import Counts, RunningCounts

__all__ = [
    "LONGEST_EVENT",
    "NO_FAILURES",
    "UNREADABLE",
    "Counts",
    "Failures",
    "HttpAnswer",
    "JsonLines",
    "Refusal",
    "RunningCounts",
    "SdkOptions",
    "SdkProvider",
    "SdkWire",
    "event_chunks",
    "opened",
    "whole_body",
]
