"""Records of a scored prompt -> the same with its text, which a completion with `echo` returns."""

import codecs
from collections.abc import Sequence

import msgspec

from tg_gateway.dialects.chat import TextInput
from tg_gateway.dialects.openai.completion_logprobs import bytes_of
from tg_schema import TextCompletionResponse

_Utf8 = codecs.getincrementaldecoder("utf-8")


class ScoredPrompts:
    """The prompts of one request. A text comes with its first record; of ids each record has the text of its own.

    Args:
        prompts: those that the records' `index` counts.
    """

    def __init__(self, prompts: Sequence[TextInput]) -> None:
        self._texts = {index: prompt for index, prompt in enumerate(prompts) if isinstance(prompt, str)}
        self._decoders = {index: _Utf8("replace") for index, prompt in enumerate(prompts) if isinstance(prompt, tuple)}

    def add_text(self, record: TextCompletionResponse) -> TextCompletionResponse:
        """The record with its piece of the text."""
        decoder = self._decoders.get(record.index)
        if decoder is None:
            return msgspec.structs.replace(record, response=self._texts.pop(record.index, ""))
        shown = b"".join(bytes_of(token) for token in record.prompt_tokens if not token.special)
        return msgspec.structs.replace(record, response=decoder.decode(shown))
