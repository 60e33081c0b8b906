"""The operations of the mounts of OpenAI's Responses API."""

from typing import Final

CREATE: Final = "create"
COUNT: Final = "input-tokens"
COMPACT: Final = "compact"
CONVERSE: Final = "converse"
RETRIEVE: Final = "retrieve"
DELETE: Final = "delete"
LIST_ITEMS: Final = "input-items"
CANCEL: Final = "cancel"
