"""The parts of every dialect: the interfaces and values that docs/adding-a-dialect.md describes."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_gateway.dialects import batches, pages
from tg_gateway.dialects.abridged_body import abridge_body
from tg_gateway.dialects.background import BEGUN_LINES, Answer, Background, RecordedEnd, StreamedAnswer, Waiting
from tg_gateway.dialects.call import Ask, Batch, Call, FailedRequest, Keeping
from tg_gateway.dialects.catalogue import Catalogue, FoundModel
from tg_gateway.dialects.conversation import Conversation, Name, Socket
from tg_gateway.dialects.dialect import ASKING, EVENTS, Description, Dialect, Mount
from tg_gateway.dialects.event_cutter import EventCutter
from tg_gateway.dialects.field_names import FieldNames, InvalidParameter
from tg_gateway.dialects.framing import END_OF_EVENT, format_retry_after, json_line, server_sent_event, text_frame
from tg_gateway.dialects.idempotency_key import IDEMPOTENCY_HEADER, IdempotencyKey, digest_request, name_answer
from tg_gateway.dialects.ignored_fields import list_unknown, show_ignored
from tg_gateway.dialects.kept_answers import KEPT_SECONDS, MAX_KEPT_BYTES, Keep, KeptAnswer, KeptAnswers, Outcome
from tg_gateway.dialects.kept_streams import KEEP_FIELD, KEEP_HEADER, NO_STREAMS, ExpiredStream, KeptStreams
from tg_gateway.dialects.live_figures import NO_FIGURES, LiveFigures
from tg_gateway.dialects.output import (
    MAX_WRITE_BYTES, Output, append_output, join_output, measure_output, slice_output, split_output,
)
from tg_gateway.dialects.stream_reader import StreamReader, find_failure
from tg_gateway.dialects.tally import Tally
from tg_gateway.dialects.writer import BodyWriter, CompletionWriter, WholeWriter, WrappingWriter, Writer, is_text_alone

__all__ = [
    "ASKING", "BEGUN_LINES", "END_OF_EVENT", "EVENTS", "IDEMPOTENCY_HEADER", "KEEP_FIELD", "KEEP_HEADER",
    "KEPT_SECONDS", "MAX_KEPT_BYTES", "MAX_WRITE_BYTES", "NO_FIGURES", "NO_STREAMS", "Answer", "Ask", "Background",
    "Batch", "BodyWriter", "Call", "Catalogue", "CompletionWriter", "Conversation", "Description", "Dialect",
    "EventCutter", "ExpiredStream", "FailedRequest", "FieldNames", "FoundModel", "IdempotencyKey", "InvalidParameter",
    "Keep", "Keeping", "KeptAnswer", "KeptAnswers", "KeptStreams", "LiveFigures", "Mount", "Name", "Outcome", "Output",
    "RecordedEnd", "Socket", "StreamReader", "StreamedAnswer", "Tally", "Waiting", "WholeWriter", "WrappingWriter",
    "Writer", "abridge_body", "append_output", "batches", "digest_request", "find_failure", "format_retry_after",
    "is_text_alone", "join_output", "json_line", "list_unknown", "measure_output", "name_answer", "pages",
    "server_sent_event", "show_ignored", "slice_output", "split_output", "text_frame",
]
