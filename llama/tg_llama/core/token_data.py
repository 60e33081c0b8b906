"""Token id -> Token: what a client is told of it."""

from collections.abc import Sequence

from tg_llama.core.model import Model
from tg_schema import Token

Alternatives = Sequence[tuple[int, float]]


def token_data(model: Model, token: int, logprob: float | None = None, top: Alternatives = ()) -> Token:
    """The id, text and bytes of `token`, with its log-probability and the alternatives to it.

    The text of a control token is its name.
    """
    special = model.is_control(token)
    text = model.special_text(token) if special else model.text(token)
    return Token(
        id=token,
        text=text,
        logprob=logprob,
        top=tuple(top),
        top_texts=tuple([model.text(number) or model.special_text(number) for number, _ in top]),
        raw_bytes=model.pieces[token] if "\ufffd" in text else None,
        special=special,
    )
