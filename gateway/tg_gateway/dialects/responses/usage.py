"""Token counts as chats tell them -> the usage of a response, which names them differently and always has the parts."""

from tg_gateway.dialects.chat import CompletionUsage
from tg_gateway.dialects.responses.response_object import InputDetails, OutputDetails, ResponseUsage


def make_usage(counted: CompletionUsage | None) -> ResponseUsage | None:
    """The usage of a response; None if the provider counts nothing. A part that it does not count is 0."""
    if counted is None:
        return None
    read, written = counted.prompt_tokens_details, counted.completion_tokens_details
    return ResponseUsage(
        counted.prompt_tokens,
        InputDetails(read.cached_tokens or 0, read.cache_write_tokens or 0) if read else InputDetails(),
        counted.completion_tokens,
        OutputDetails(written.reasoning_tokens or 0) if written else OutputDetails(),
        counted.total_tokens,
    )
