"""Records of a whole answer -> TGI's JSON."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from tg_doors.tgi.answer_shapes import GeneratedText
from tg_doors.tgi.generated_answers import GeneratedAnswers
from tg_doors.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_doors.tgi.timings import Timings
from tg_gateway.dialects import WholeWriter
from tg_schema import TextCompletionResponse, encode
from tg_schema.errors import ProtocolError


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
        if any(record.index >= asked.answers for record in records):
            raise ProtocolError("the model sent more answers than were asked for; ask again, or another model")
        answers = GeneratedAnswers.of(records, asked.stop or ())
        self.headers = {
            **self._timings.end_headers(answers.in_token, answers.best.counted_tokens),
            **self._ignored,
        }
        details = answers.describe(self._prefix) if asked.wants_details else None
        whole = GeneratedText(self._prefix + answers.best.text, details)
        return encode([whole] if self._listed else whole)
