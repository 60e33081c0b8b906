"""Stream, dialog -> its caller: refuses a second begin, with one message for all kinds."""

from tg_schema.errors import BadRequest


class BegunOnce:
    """Remembers that something was begun.

    Args:
        what: the thing, for the error's message.
        again: how to get another one.
    """

    def __init__(self, what: str, again: str) -> None:
        self._sentence = f"this {what} was begun before: {again} for another one"
        self._begun = False

    def begin(self) -> None:
        """Begin.

        Raises:
            BadRequest: it has begun before.
        """
        if self._begun:
            raise BadRequest(self._sentence)
        self._begun = True
