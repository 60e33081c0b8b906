"""A recorded stream -> LlmChunks: the provider of tests, which answers every request as a model once has.

The recording is what `tg-replay ID --json` prints. It has all that came of a model: text, thinking, calls, the finish
reason, usage, and the error of a stream that failed.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

import msgspec
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode
from tg_schema.completion import Completion
from tg_schema.errors import BadRequest
from tg_schema.features import Feature
from tg_schema.recorded import Pace

_OPERATIONS: Final = (
    *("count_tokens", "tokenize", "detokenize", "token_texts", "score", "embed", "embed_ids", "pooling", "dimensions"),
    *("truncate", "adapter", "load_adapter", "best_of"),
)
"""What a recording of one answer cannot do."""


class RecordedCompletion(TextCompletionResponse, frozen=True, omit_defaults=True):
    """One record; `at` as in `tg_schema.recorded.Recorded`."""

    at: float | None = None


class ReplayOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options.

    Attributes:
        recording: the file, one record a line.
        speed: times as fast as the records came; "max" = without pauses.
    """

    recording: str
    speed: Annotated[float, msgspec.Meta(gt=0)] | Literal["max"] = 1.0


class Replay(LlmService[ReplayOptions]):
    """Repeats one answer, whatever is asked."""

    features = frozenset(get_args(Feature)).difference(_OPERATIONS)
    capacity = 1000

    def __init__(self, model: str, options: ReplayOptions, records: tuple[RecordedCompletion, ...]) -> None:
        super().__init__(model, options)
        self._records = records

    @classmethod
    @override
    async def open(cls, model: str, options: ReplayOptions) -> Self:
        return cls(model, options, await asyncio.to_thread(_read, options.recording))

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        pace = Pace(self.options.speed)
        for record in self._records:
            await asyncio.sleep(pace.pause(record.at))
            if record.error is not None:
                raise TgError.of(record.error)
            fields = {name: getattr(record, name) for name in Completion.__struct_fields__}
            yield LlmChunk(record.response or "", **fields)


def _read(recording: str) -> tuple[RecordedCompletion, ...]:
    """The records of a file.

    Raises:
        BadRequest: there is none, or it is no recording of a whole answer of a model.
    """
    try:
        lines = Path(recording).read_bytes().splitlines()
    except OSError as error:
        raise BadRequest(f"recording: {error.strerror}: {recording}; tg-replay ID --json > FILE makes one").at(
            "recording"
        ) from None
    records = tuple(decode(RecordedCompletion, line) for line in lines)
    if not (records and records[-1].last):
        raise BadRequest(
            "recording: its last line is not the end of a model's answer; record it anew: tg-replay ID --json"
        ).at("recording")
    return records
