"""The `parameters` of a request, for each of LMI's rolling batches, with LMI's defaults; and the order made of them.

Source: LMI's inference API schema, 0.31.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from tg_gateway.dialects.chat import AnyCount, AtLeastOne, VllmSampling

DEFAULT_MAX_NEW_TOKENS: Final = 30
"""LMI's default."""

Alternatives = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class LmiParameters(VllmSampling, frozen=True, kw_only=True):
    """How to generate. null, and values without effect (`top_p` 1), count as absent."""

    # The parameters of every rolling batch.
    do_sample: bool | None = None
    max_new_tokens: AtLeastOne | None = None
    details: bool | None = None
    return_full_text: bool | None = None
    stop_sequences: tuple[str, ...] | None = None
    decoder_input_details: bool | None = None
    output_formatter: str | None = None
    # The parameters of LMI-Dist and vLLM.
    truncate: AtLeastOne | None = None
    ignore_eos_token: bool | None = None
    num_beams: AtLeastOne | None = None
    early_stopping: bool | None = None
    logprobs: Alternatives | None = None
    prompt_logprobs: Alternatives | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    # The parameters of TensorRT-LLM.
    min_length: AnyCount | None = None
    bad_sequences: tuple[str, ...] | None = None
    stop: bool | str | tuple[str, ...] | None = None
    """TensorRT-LLM's is a boolean, without a meaning here; TGI's and vLLM's are texts."""
    # The parameters of TGI, whose clients set `tgi_compat`.
    top_n_tokens: Alternatives | None = None

    @property
    def max_tokens(self) -> int:
        """The length of an answer, in tokens."""
        return self.max_new_tokens or DEFAULT_MAX_NEW_TOKENS

    @property
    def samples(self) -> bool:
        """Whether to sample: LMI infers it from the other parameters, unless `do_sample` is set."""
        # TensorRT-LLM's word for the most probable token is `top_p` 0: no other token is in that share.
        if self.temperature == 0 or self.top_p == 0:
            return False
        if self.do_sample is not None:
            return self.do_sample
        drawn = (self.temperature, keep(self.top_k, 0, -1), keep(self.top_p, 1), keep(self.typical_p, 1), self.min_p)
        return any(drawn)

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end the answer."""
        further = (self.stop,) if isinstance(self.stop, str) else self.stop if isinstance(self.stop, tuple) else ()
        return (*(self.stop_sequences or ()), *further)

    @property
    def generated(self) -> int:
        """How many answers are generated."""
        return max(self.n or 1, self.best_of or 1)

    @property
    def details_name(self) -> str | None:
        """The parameter that asks for details; None = there is none."""
        asked = {
            "details": self.details,
            "decoder_input_details": self.decoder_input_details,
            "prompt_logprobs": self.prompt_logprobs is not None,
        }
        return next((name for name, value in asked.items() if value), None)

    @property
    def several_name(self) -> str:
        """The parameter that asks for several answers."""
        return "n" if (self.n or 1) > 1 else "best_of"

    @property
    def returned(self) -> int:
        """How many answers are sent: `n`, or all that `best_of` generates."""
        return self.n if self.n is not None and self.n > 1 else self.generated

    @property
    def alternatives(self) -> int:
        """How many of the most probable tokens to send at each place."""
        return max(self.logprobs or 0, self.top_n_tokens or 0)

    @property
    def wants_prefill(self) -> bool:
        """Whether the tokens of the inputs are sent."""
        return bool(self.decoder_input_details) or self.prompt_logprobs is not None


def keep(value: Any, *nothing: float) -> Any:
    """The value; None if it has no effect."""
    return None if value in nothing else value


@dataclass(frozen=True, slots=True)
class Order:
    """One request for one text.

    Attributes:
        text: `inputs`.
        parameters: how to generate.
        given: the parameters, unchanged.
        compatible: whether TGI's names are wanted.
        details: whether the answer has its finish reason and its tokens.
        model: its name.
    """

    text: str
    parameters: LmiParameters
    given: Mapping[str, Any]
    compatible: bool
    details: bool
    model: str

    @property
    def prefix(self) -> str:
        """The text with which the answer begins."""
        return self.text if self.parameters.return_full_text else ""

    @property
    def kept_stops(self) -> tuple[str, ...]:
        """The stop strings that may be the end of the text."""
        return self.parameters.stops if self.parameters.include_stop_str_in_output else ()
