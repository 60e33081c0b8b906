"""The body of a request for raw text: the names and ranges of TGI's API (its openapi.json), and `model`."""

from typing import Annotated, Any, Final, Literal

import msgspec

from tg_gateway.dialects.chat import AtLeastOne
from tg_schema.sampling import Choices, Penalty

SEEDS: Final = 2**64
"""How many there are."""


def sign_seed(seed: int) -> int:
    """The seed with the same bits, in the range of a record's."""
    return seed if seed < SEEDS // 2 else seed - SEEDS


def unsign_seed(seed: int | None) -> int | None:
    """The seed of a record in TGI's form; None = it has none."""
    return None if seed is None else seed % SEEDS


MAX_STOP_SEQUENCES: Final = 4
"""TGI's limit of `stop`."""

AboveZero = Annotated[float, msgspec.Meta(gt=0, le=100)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
"""A share of the probability below 1; leave it out for all of it."""


class Grammar(msgspec.Struct, frozen=True):
    """The form of the answer; the meaning of `value` depends on `type`. `json_object` is another name of `json`."""

    type: Literal["json", "json_object", "regex", "json_schema"]
    value: Any


class GenerationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate. null is as good as absent."""

    best_of: Choices | None = None
    temperature: AboveZero | None = None
    repetition_penalty: AboveZero | None = None
    frequency_penalty: Penalty | None = None
    top_k: AtLeastOne | None = None
    top_p: Share | None = None
    typical_p: Share | None = None
    do_sample: bool | None = None
    max_new_tokens: AtLeastOne | None = None
    return_full_text: bool | None = None
    stop: tuple[str, ...] | None = None
    truncate: AtLeastOne | None = None
    watermark: bool | None = None
    details: bool | None = None
    decoder_input_details: bool | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    top_n_tokens: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    grammar: Grammar | None = None
    adapter_id: str | None = None

    @property
    def answers(self) -> int:
        """How many answers are generated."""
        return self.best_of or 1

    @property
    def samples(self) -> bool:
        """Whether to sample; otherwise the most probable token is chosen each time."""
        drawn = (self.temperature, self.top_k, self.top_p, self.typical_p)
        return bool(self.do_sample) or any(value is not None for value in drawn)

    @property
    def wants_details(self) -> bool:
        """Whether a whole answer has its tokens."""
        return bool(self.details or self.decoder_input_details)


class GenerateBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request for text. `model` is our addition: TGI has one model. Without it, the default flow's model is asked."""

    inputs: str
    parameters: GenerationParameters | None = None
    stream: bool | None = None
    model: str | None = None
