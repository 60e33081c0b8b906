"""A wrong field -> an error that names the field apart from its message, for the client's program."""

from tg_schema.errors import BadRequest


class InvalidParameter(BadRequest):
    """A bad request whose field is known.

    Args:
        message: what is wrong, and what to do.
        param: the field, such as `messages[0].role`.
        code: OpenAI's error code, such as `unsupported_value`.
    """

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
