"""OpenAI's Responses -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.chat import Failure
from tg_gateway.dialects.responses.compaction import Compaction
from tg_gateway.dialects.responses.events import Event
from tg_gateway.dialects.responses.input_list import ItemPage, PageQuery
from tg_gateway.dialects.responses.kept_response import DeletedResponse, RetrieveQuery
from tg_gateway.dialects.responses.request_body import RequestBody
from tg_gateway.dialects.responses.response_object import ResponseObject
from tg_gateway.dialects.responses.writers import InputTokens
from tg_schema.errors import BadRequest, BusError, NotFound, Timeout, Unavailable

CREATE: Final = "create"
COUNT: Final = "input-tokens"
COMPACT: Final = "compact"
CONVERSE: Final = "converse"
RETRIEVE: Final = "retrieve"
DELETE: Final = "delete"
LIST_ITEMS: Final = "input-items"
CANCEL: Final = "cancel"


_describe = partial(Description, group="OpenAI Responses", failure=Failure)
_ask = partial(_describe, body=RequestBody, raises=ASKING)
_about_kept = partial(
    _describe,
    path={"response": "resp_0123456789abcdef"},
    raises=(BadRequest, NotFound, Timeout, Unavailable, BusError),
)
_HELLO: Final[Mapping[str, Any]] = {"model": "tinydemo", "input": "Hello"}
_EVENTS: Final = tuple(Event.__subclasses__())

RESPONSES_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    CREATE: _ask(
        summary="Continue a conversation",
        required=("input",),
        answer=ResponseObject,
        events=EVENTS,
        event=_EVENTS,
        examples={
            "whole": {**_HELLO, "max_output_tokens": 16},
            "streamed": {**_HELLO, "stream": True},
            "kept": {**_HELLO, "max_output_tokens": 16, "store": True},
        },
    ),
    CONVERSE: _describe(summary="Open a WebSocket for many responses at once"),
    COUNT: _ask(
        summary="Count the tokens of a conversation",
        required=("input",),
        answer=InputTokens,
        examples={"text": _HELLO},
    ),
    COMPACT: _ask(
        summary="Put a summary in place of a conversation",
        required=("model", "input"),
        answer=Compaction,
        examples={"text": _HELLO},
    ),
    RETRIEVE: _about_kept(
        summary="Show a kept response, or repeat its events",
        query=RetrieveQuery,
        answer=ResponseObject,
        events=EVENTS,
        event=_EVENTS,
    ),
    DELETE: _about_kept(summary="Delete a kept response", answer=DeletedResponse),
    LIST_ITEMS: _about_kept(summary="List what a kept response was asked", query=PageQuery, answer=ItemPage),
    CANCEL: _about_kept(summary="Cancel a response in the background", answer=ResponseObject),
}
