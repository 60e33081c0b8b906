"""Record of an answer -> whether a writer may take its fast path: nearly all records have text and nothing else."""

from tg_schema import TextCompletionResponse
from tg_schema.completion import UNCOUNTED, counts_of


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
        and counts_of(record) == UNCOUNTED
        and record.signature is None
        and record.stopped_by is None
    )
