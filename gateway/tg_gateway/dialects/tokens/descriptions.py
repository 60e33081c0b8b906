"""Token ids -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tg_gateway.description import ASKING, Description
from tg_gateway.dialects.chat import Failure
from tg_gateway.dialects.tokens.bodies import DetokenizeBody, TokenizeBody
from tg_gateway.dialects.tokens.writers import Detokenized, Tokenized

_describe = partial(Description, group="Token ids", failure=Failure, raises=ASKING)

TOKENS_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "tokenize": _describe(
        summary="Make token ids of a text or a conversation",
        body=TokenizeBody,
        answer=Tokenized,
        examples={"text": {"prompt": "Once upon a time"}},
    ),
    "detokenize": _describe(
        summary="Make a text of token ids",
        body=DetokenizeBody,
        required=("tokens",),
        answer=Detokenized,
        examples={"ids": {"tokens": [72, 73]}},
    ),
}
