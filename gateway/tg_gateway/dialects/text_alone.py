"""Record of an answer -> whether a writer may take its fast path: nearly all records have text and nothing else."""

from tg_schema import TextCompletionResponse


def is_text_alone(record: TextCompletionResponse) -> bool:
    """Whether it has text, and nothing else that any protocol sends, now or at the end of the answer.

    It runs for each chunk. The fields that are set most often beside text are checked first.
    """
    return bool(
        record.response
        and not record.end_of_stream
        and not record.tokens
        and record.reasoning is None
        and not record.tool_calls
        and record.finish_reason is None
        and record.in_token is None
        and record.out_token is None
        and record.signature is None
        and record.cached_token is None
        and record.cache_write_token is None
        and record.reasoning_token is None
        and record.stopped_by is None
    )
