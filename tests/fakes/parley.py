"""Parley <-> records: a protocol of our own invention, whole in one file, as somebody outside would add it."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_gateway.dialects import (
    Answer,
    Ask,
    Call,
    Conversation,
    Dialect,
    Mount,
    Socket,
    WholeWriter,
    Writer,
    server_sent_event,
    text_frame,
)
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode, encode
from tg_schema.errors import BadRequest


class ParleyConfig(msgspec.Struct, frozen=True):
    """The table [gateway.parley]."""

    longest: Annotated[int, msgspec.Meta(gt=0)] = 1_000_000
    """Characters that one may say at a time."""


class _Talk(msgspec.Struct, frozen=True):
    say: str = ""
    voice: str | None = None
    live: bool = False


class _Word(msgspec.Struct, frozen=True):
    talk: str
    word: str


class _Total(msgspec.Struct, frozen=True, omit_defaults=True):
    talk: str
    heard: int
    said: int
    speech: str | None = None


class _Fault(msgspec.Struct, frozen=True):
    fault: str
    code: int


class LiveWriter(Writer[TextCompletionResponse]):
    """Named and numbered events: each word, the total at the end, and `[DONE]`."""

    cut_after_failure = True

    def __init__(self, talk: str) -> None:
        self._talk = talk
        self._number = self._heard = self._said = 0

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        self._heard += record.in_token or 0
        self._said += record.out_token or 0
        return self._event(b"word", _Word(self._talk, record.response)) if record.response else b""

    @override
    def end(self) -> bytes:
        total = self._event(b"total", _Total(self._talk, self._heard, self._said))
        return total + server_sent_event(b"[DONE]")

    @override
    def fail(self, error: TgError) -> bytes:
        return self._event(b"fault", _Fault(error.message, error.status))

    def _event(self, name: bytes, data: msgspec.Struct) -> bytes:
        self._number += 1
        return server_sent_event(encode(data), name, b"%d" % self._number)


class SpeechWriter(WholeWriter[TextCompletionResponse]):
    """The whole speech in one body."""

    def __init__(self, talk: str) -> None:
        super().__init__(TextCompletionResponse)
        self._talk = talk

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        (record,) = records
        return encode(_Total(self._talk, record.in_token or 0, record.out_token or 0, record.response))


class Parley(Dialect):
    """`POST /parley/talks` and `GET /parley/voices`; talks side by side on the WebSocket `/parley/line`."""

    def __init__(self, longest: int = ParleyConfig().longest) -> None:
        self._longest = longest

    @override
    def configure(self, config: GatewayConfig) -> "Parley":
        return type(self)(config.door(ParleyConfig).longest)

    @override
    def parse(self, call: Call) -> Ask | Answer:
        if call.operation == "voices":
            return Answer(encode(call.catalogue.models()))
        talk = decode(_Talk, call.body)
        if not talk.say:
            raise BadRequest("say something")
        if len(talk.say) > self._longest:
            raise BadRequest(f"say at most {self._longest} characters")
        found = call.catalogue.find_model(talk.voice)
        if found.adapter:
            raise BadRequest("a voice has no accents here")
        request = TextCompletionRequest(prompt=talk.say, model=found.model, streaming=talk.live)
        name = f"talk-{call.request_id}"
        return Ask(found.route, request, LiveWriter(name) if talk.live else SpeechWriter(name), talk.live)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(encode(_Fault(error.message, status)), status)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return _Line(socket)


class _Line(Conversation):
    """`SAY NAME TEXT` and `HUSH NAME` come; `WORD NAME TEXT`, `OVER NAME` and `FAULT NAME TEXT` go."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    @override
    def take(self, message: bytes) -> None:
        verb, _, rest = message.decode("utf-8", "replace").partition(" ")
        name, _, said = rest.partition(" ")
        line = _LineWriter(name)
        if verb == "HUSH":
            self._socket.cancel(name)
            return
        try:
            if verb != "SAY" or not said or self._socket.is_running(name):
                raise BadRequest("say `SAY NAME TEXT`, with a name of its own")
            found = self._socket.catalogue.find_model(None)
            request = TextCompletionRequest(prompt=said, model=found.model, streaming=True)
            asked = Ask(found.route, request, line, streaming=True)
            self._socket.ask(name, found.route, len(message), lambda: asked, line.fail)
        except TgError as error:
            self._socket.send(line.fail(error))


class _LineWriter(Writer[TextCompletionResponse]):
    def __init__(self, name: str) -> None:
        self._name = name

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        return self._frame("WORD", record.response) if record.response else b""

    @override
    def end(self) -> bytes:
        return self._frame("OVER")

    @override
    def fail(self, error: TgError) -> bytes:
        return self._frame("FAULT", error.message)

    def _frame(self, verb: str, text: str = "") -> bytes:
        return text_frame(f"{verb} {self._name} {text}".encode())


PARLEY = Parley()
MOUNTS = (
    Mount("POST", "/parley/talks", PARLEY, "talk"),
    Mount("GET", "/parley/voices", PARLEY, "voices"),
    Mount("GET", "/parley/line", PARLEY, "line", socket=True),
)
