"""Token of a model -> its data in a record."""

from collections.abc import Sequence

from tg_llama.core.interface import CONTROL_TOKEN, Model
from tg_schema import Token

Alternatives = Sequence[tuple[int, float]]


def token_data(model: Model, token: int, logprob: float | None = None, top: Alternatives = ()) -> Token:
    """The id, text and bytes of `token`, with its log-probability and the alternatives to it.

    The text of a control token is its name.
    """
    special = bool(model.attributes(token) & CONTROL_TOKEN)
    text = model.special_text(token) if special else _text(model, token)
    return Token(
        id=token,
        text=text,
        logprob=logprob,
        top=tuple(top),
        top_texts=tuple([_text(model, number) or model.special_text(number) for number, _ in top]),
        raw_bytes=model.pieces[token] if "\ufffd" in text else None,
        special=special,
    )


def _text(model: Model, token: int) -> str:
    """The text of `token`; half a character is U+FFFD."""
    return model.pieces[token].decode("utf-8", "replace")
