"""A place and a value -> what its door answers, over HTTP or a WebSocket."""

from typing import Final

from aiohttp import ClientSession, WSMsgType
from yarl import URL

from tests.hostile_inputs.doors import Place
from tg_schema.errors import Internal

_ERRORS: Final = ('"error":"', '"error":{', '"type":"response.failed"')
_ENDS: Final = (
    *_ERRORS,
    *('"complete":true', '"finish_reason":"', '"type":"response.completed"', '"type":"response.incomplete"'),
)
"""What is in the last message of a stream, at one of the doors."""
ANSWER_SECONDS: Final = 300.0
"""A bound for a test that hangs; what is measured is CPU time."""


async def ask(http: ClientSession, place: Place, value: bytes) -> tuple[int, str]:
    """The status, 101 on a WebSocket, and all that comes until the answer ends."""
    if place.socket:
        return 101, await _ask_on_socket(http, place, value)
    path = URL(f"/{place.fill_path(value.decode())}", encoded=True)
    method, data = ("GET", None) if place.body is None else ("POST", place.fill(value))
    async with http.request(method, path, data=data) as response:
        return response.status, await response.text(errors="replace")


async def _ask_on_socket(http: ClientSession, place: Place, value: bytes) -> str:
    async with http.ws_connect(f"/{place.path}") as socket:
        # As it is: a client need not send UTF-8.
        await socket.send_frame(place.fill(value), WSMsgType.TEXT)
        told = ""
        while not any(end in told for end in _ENDS):
            message = await socket.receive(timeout=ANSWER_SECONDS)
            if message.type is not WSMsgType.TEXT:
                assert message.type is WSMsgType.CLOSE, (place.path, message)
                break
            told += message.data
        return told


def is_defect(status: int, said: str) -> bool:
    """Whether something of ours has failed, and not the request."""
    return status == Internal.status or f'"{Internal.type}"' in said


def is_answer(status: int, said: str) -> bool:
    """Whether it is one."""
    return status in {101, 200} and not any(error in said for error in _ERRORS)
