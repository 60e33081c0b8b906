"""A request's sampling: how tokens are chosen, how many answers there are, and where they stop."""

from typing import Annotated, Final

import msgspec

from tg_schema.features import Feature
from tg_schema.many import Many

MAX_CHOICES = 128
"""The highest `n` and `best_of` (OpenAI's limit)."""

Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Base64 = Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
"""Base64 text, decoded only where the bytes are needed."""
Choices = Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)]

_SAYS_NOTHING: Final[tuple[tuple[str, object], ...]] = (
    ("n", 1),
    ("min_tokens", 0),
    ("logit_bias", {}),
    ("length_penalty", 1),
)
"""Values that mean the same as None."""


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sampling parameters; None = the provider's default.

    The ranges are the widest that any provider accepts; `decode` and `check_completion` enforce them. A provider may
    reject more. Only set fields are written, so that an older processor can read the fields that it knows.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    """0, and -1 for some servers, = all tokens."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    stop: Many[str] = ()
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    """Alternatives to report for each token; 0 = only the chosen token; None = no token data."""
    n: Choices | None = None
    """How many answers the prompt gets; each record says by `index` to which answer it belongs."""
    best_of: Choices | None = None
    """How many answers are generated; the `n` with the highest mean log-probability of a token are returned."""
    min_p: Fraction | None = None
    """Tokens less probable than this fraction of the most probable one are not chosen."""
    typical_p: Fraction | None = None
    """The probability mass of the locally typical tokens that are chosen from."""
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    """Divides the logits of tokens that occurred before; 1 = no penalty."""
    length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
    logit_bias: dict[int, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None
    """Token id -> the number added to its logit; in our own models before log-probabilities are computed."""
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """Tokens before which the answer may not end."""
    ignore_eos: bool = False
    """Go on after the model's end of text, up to `max_tokens`."""
    stop_ids: tuple[TokenId, ...] = ()
    """Tokens that end the answer, besides the model's own."""
    keep_stop: bool = False
    """Whether the stop string that ended the answer is a part of its text."""
    prompt_logprobs: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    """Alternatives to report for each token of the prompt; None = no data of the prompt."""
    end_token: bool = False
    """Whether `tokens` has the token that ended the answer too, the model's own end token or one of `stop_ids`.

    That token is the last one, and no part of the text or of the counts. Needs `logprobs`."""
    packed_bias: str | None = None
    """`logit_bias` as "id,bias,id,bias,...": a mask of a vocabulary is read at once, not by entry."""
    packed_floats: Base64 | None = None
    """`logit_bias` as a 32-bit float, little-endian, for each token of the vocabulary, in the order of the ids."""

    def __post_init__(self) -> None:
        """Drop values without effect, which have no feature: an older processor would refuse the unknown field."""
        if self.best_of == 1 and self.n in {None, 1}:
            msgspec.structs.force_setattr(self, "best_of", None)
        for name, nothing in _SAYS_NOTHING:
            if getattr(self, name) == nothing:
                msgspec.structs.force_setattr(self, name, None)

    @property
    def features(self) -> frozenset[Feature]:
        """The features that a provider needs for this; temperature and max_tokens need none."""
        asked: dict[Feature, bool] = {
            "stop": bool(self.stop),
            "seed": self.seed is not None,
            "top_p": self.top_p is not None,
            "top_k": self.top_k is not None,
            "penalties": self.presence_penalty is not None or self.frequency_penalty is not None,
            "logprobs": self.logprobs is not None,
            "n": (self.n or 1) > 1,
            "best_of": (self.best_of or 1) > (self.n or 1),
            "min_p": self.min_p is not None,
            "typical_p": self.typical_p is not None,
            "repetition_penalty": self.repetition_penalty is not None,
            "length_penalty": self.length_penalty is not None,
            "logit_bias": any((self.logit_bias, self.packed_bias is not None, self.packed_floats is not None)),
            "packed_bias": self.packed_bias is not None,
            # "e" alone would not do: an exponent may be an "E", and most numbers have a point.
            "packed_floats": self.packed_floats is not None or any(map((self.packed_bias or "").__contains__, ".eE")),
            "min_tokens": bool(self.min_tokens),
            "ignore_eos": self.ignore_eos,
            "stop_ids": bool(self.stop_ids),
            "keep_stop": self.keep_stop,
            "prompt_logprobs": self.prompt_logprobs is not None,
            "end_token": self.end_token,
        }
        return frozenset(feature for feature, needed in asked.items() if needed)
