"""Caller -> requestor -> bus: the asking side. One `Requestor` for each process, one `Client` for each service."""

from tg_base.client.admission import round_up_to_milliseconds
from tg_base.client.announced_routes import AnnouncedRoutes
from tg_base.client.attempt import StreamOrigin
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.client import Client, prompt_request
from tg_base.client.requestor import Requestor
from tg_base.client.response_stream import ResponseStream

__all__ = [
    "AnnouncedRoutes",
    "BeginPermit",
    "Client",
    "Requestor",
    "ResponseStream",
    "StreamOrigin",
    "prompt_request",
    "round_up_to_milliseconds",
]
