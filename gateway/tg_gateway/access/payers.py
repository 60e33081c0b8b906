"""Key and `user` of a request -> who is charged for it, in the form that is sent along with the request's trace."""

from typing import Final

import msgspec

from tg_base.config import GatewayConfig
from tg_schema.codec import encode_request
from tg_schema.usage_record import Payer

MAX_CUSTOMER_CHARACTERS: Final = 256
"""Characters of a request's `user` that name a customer; the rest is cut off."""
_NOBODY: Final = Payer()


class Payers:
    """Who each key's requests are charged to.

    Args:
        config: the keys.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.update(config)

    def update(self, config: GatewayConfig) -> None:
        """Put edited keys in force."""
        # If several keys have the same name, the customer of the first one counts.
        self._payers = {key.name: Payer(key.name, key.customer, key.tags) for key in reversed(config.keys)}

    def describe(self, key: str | None, user: str | None) -> str | None:
        """The JSON of the payer of a key's request for this `user`; None = nothing is known.

        Raises:
            BadRequest: `user` is no UTF-8.
        """
        payer = self._payers.get(key or "", _NOBODY)
        if user:
            payer = msgspec.structs.replace(payer, customer=user[:MAX_CUSTOMER_CHARACTERS])
        return None if payer is _NOBODY else encode_request(payer).decode()
