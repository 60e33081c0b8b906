"""The wire of the provider in docs/adding-a-provider.md: lines of JSON over HTTP."""

import json
from collections.abc import Iterable
from typing import ClassVar, Literal

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.loopback_server import STATUS, LoopbackServer, Refused
from tests.fakes.plan import Asked, Plan
from tg_schema import Message, Sampling
from tg_schema.errors import ContextLengthExceeded


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Literal["fake-model"]
    prompt: str
    system: str = ""
    heat: float | None = None
    longest: int | None = None
    stop: tuple[str, ...] = ()


class ParrotServer(LoopbackServer):
    """`POST /say` with a key."""

    content_type = "application/x-ndjson"
    keep_alive = b"\n"
    garbage = b'{"say\n'
    key: ClassVar[str] = "cracker"

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if request.headers.get("X-Parrot-Key") != self.key:
            raise Refused(web.Response(status=401))
        try:
            said = msgspec.json.decode(body, type=Said)
        except msgspec.ValidationError:
            raise Refused(web.Response(status=400)) from None
        return Asked(
            said.model,
            (Message("user", said.prompt),),
            said.system,
            sampling=Sampling(temperature=said.heat, max_tokens=said.longest, stop=said.stop),
        )

    @override
    def refusal(self, plan: Plan) -> web.Response:
        text = "the prompt is too long" if plan.error is ContextLengthExceeded else ""
        return web.Response(status=STATUS[plan.error], headers=plan.retry_headers, text=text)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        return ()

    @override
    def piece(self, text: str) -> bytes:
        return _line(say=text)

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        counts = plan.counts
        if counts is None:
            yield _line(end=plan.finish)
        else:
            yield _line(end=plan.finish, heard=counts.tokens_in, said=counts.tokens_out)

    @override
    def error(self, plan: Plan) -> bytes:
        return _line(error=STATUS[plan.error])


def _line(**said: object) -> bytes:
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"
