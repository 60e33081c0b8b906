"""A recorded stream -> LlmChunks: a provider for tests, which answers every request with one recorded answer.

The recording is the output of `tg-replay ID --json`. It has everything that the model sent: text, thinking, calls, the
finish reason, usage, and the error of a stream that failed.
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
"""Operations that a recording of one answer cannot perform."""


class RecordedCompletion(TextCompletionResponse, frozen=True, omit_defaults=True):
    """One record; for `at` see `tg_schema.recorded.Recorded`."""

    at: float | None = None


class ReplayOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of the replay provider.

    Attributes:
        recording: the file, with one record a line.
        speed: the factor by which it is faster than the original; "max" = without pauses.
    """

    recording: str
    speed: Annotated[float, msgspec.Meta(gt=0)] | Literal["max"] = 1.0


class Replay(LlmService[ReplayOptions]):
    """Repeats one answer, whatever the request is."""

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
        BadRequest: there is no such file, or it is not the recording of a model's whole answer.
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
