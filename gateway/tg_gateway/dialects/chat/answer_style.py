"""How answers of another server's API with OpenAI's shape differ from OpenAI's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tg_gateway.dialects.chat.failures import encode_failure
from tg_schema import TgError

OWNER: Final = "tokengrid"


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """What the clients of that server expect.

    Attributes:
        owner: the owner of the models in lists.
        complete: whether each delta of a chat has role and text, and each chunk the key `usage`.
        named_by_user: whether the `user` of a request is the id of its answer.
        model_required: whether a request must name a model; otherwise it is the default flow's.
        encode_failure: the JSON of the event that ends a stream that failed.
    """

    owner: str = OWNER
    complete: bool = False
    named_by_user: bool = False
    model_required: bool = True
    encode_failure: Callable[[TgError], bytes] = encode_failure

    def name_answer(self, user: str | None) -> str | None:
        """The id of the answer to a request of this user; None = a new one."""
        return user if self.named_by_user and user else None


OPENAI_STYLE: Final = AnswerStyle()
"""The style of OpenAI itself."""
