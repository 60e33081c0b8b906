"""Records -> TGI's events, one for each token, or its JSON of the whole answer."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from tg_doors.tgi.answer_shapes import GeneratedText, StreamDetails, TokenEvent
from tg_doors.tgi.failures import encode_failure_event
from tg_doors.tgi.generated_answers import GeneratedAnswers
from tg_doors.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_doors.tgi.timings import Timings
from tg_doors.tgi.token_reader import LastStep, Step, TokenReader
from tg_doors.tgi.token_texts import make_alternatives, make_token
from tg_gateway.dialects import WholeWriter, Writer, server_sent_event
from tg_schema import TextCompletionResponse, TgError, encode


class TokenEventWriter(Writer[TextCompletionResponse]):
    """An event for each token. The last one has the whole text, and the details if asked for.

    Its token is the last one of an answer of full length, or the model's end token; otherwise it has the id -1.

    An answer that fails ends with one event and an orderly end, as TGI's does: its clients know a whole answer by the
    text in its last event.

    Args:
        body: what was asked.
        headers: the headers of the answer, besides those of every stream.
    """

    def __init__(self, body: GenerateBody, headers: Mapping[str, str]) -> None:
        self.headers = {**Writer.headers, **headers}
        self._body = body
        self._parameters = body.parameters or GenerationParameters()
        self._reader = TokenReader()
        self._last = LastStep(self._parameters.max_new_tokens)
        self._index = 0

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        return b"".join(map(self._encode, self._last.pass_on(self._reader.read(record))))

    @override
    def end(self) -> bytes:
        reader, asked = self._reader, self._parameters
        reason = reader.name_ending(asked.stop or ())
        details = StreamDetails(reason, reader.generated_tokens, reader.seed, reader.in_token or 0)
        prefix = self._body.inputs if asked.return_full_text else ""
        before, last = self._last.end(reader.end)
        events = b"".join(map(self._encode, before))
        return events + self._encode(last, prefix + reader.text, details if asked.details else None)

    @override
    def fail(self, error: TgError) -> bytes:
        return b"".join(map(self._encode, self._last.release())) + encode_failure_event(error)

    def _encode(self, step: Step, text: str | None = None, details: StreamDetails | None = None) -> bytes:
        self._index += 1
        token = make_token(step.token, step.text)
        event = TokenEvent(self._index, token, text, details, make_alternatives(step.token))
        return server_sent_event(encode(event))


class GeneratedTextWriter(WholeWriter[TextCompletionResponse]):
    """The whole answer in one body.

    Args:
        body: what was asked.
        timings: the clocks of the request.
        ignored: further headers.
        listed: whether it is in a list of one.
    """

    def __init__(self, body: GenerateBody, timings: Timings, ignored: Mapping[str, str], *, listed: bool) -> None:
        super().__init__(TextCompletionResponse)
        self._parameters = body.parameters or GenerationParameters()
        self._prefix = body.inputs if self._parameters.return_full_text else ""
        self._timings = timings
        self._ignored = ignored
        self._listed = listed

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        self._timings.begin()
        return super().write(record)

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        asked = self._parameters
        answers = GeneratedAnswers.of(records, asked.stop or (), asked.answers)
        self.headers = {
            **self._timings.end_headers(answers.in_token, answers.best.counted_tokens),
            **self._ignored,
        }
        details = answers.describe(self._prefix) if asked.wants_details else None
        whole = GeneratedText(self._prefix + answers.best.text, details)
        return encode([whole] if self._listed else whole)
