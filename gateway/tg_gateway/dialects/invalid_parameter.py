"""A wrong field of a client's -> a refusal that the client's program can read: the field apart from the sentence."""

from tg_schema.errors import BadRequest


class InvalidParameter(BadRequest):
    """A bad request whose field is known.

    Args:
        message: what is wrong, and what to do.
        param: the field, such as `messages[0].role`.
        code: OpenAI's word for it, such as `unsupported_value`.
    """

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
