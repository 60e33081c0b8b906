"""A message that a test writes by hand, as any peer could have written it."""

from collections.abc import Mapping

from tg_schema.errors import BadRequest


class GivenDelivery:
    """A body with properties; None = properties that are no text.

    Attributes:
        acknowledged: whether somebody has acknowledged it.
    """

    def __init__(self, body: bytes, properties: Mapping[str, str] | None, *, age: float = 0.0) -> None:
        self.body = body
        self._properties = properties
        self.age = age
        self.redelivered = False
        self.acknowledged = False

    @property
    def properties(self) -> Mapping[str, str]:
        """As given.

        Raises:
            BadRequest: there are none.
        """
        if self._properties is None:
            raise BadRequest("the message's properties are not text: they must be UTF-8")
        return self._properties

    def ack(self) -> None:
        """Note it."""
        self.acknowledged = True

    def nack(self, after: float = 0.0) -> None:
        """Nobody to give it back to."""
