"""LMTP on a WebSocket: GENERATE and SCORE come, TOKEN messages go, many streams side by side.

    client: GENERATE {..}   SCORE {..}   MODEL_INFO {..}
    server: TOKEN [{"stream_id",..}, ..]   MSG [{"stream_id",..}, ..]

HELLO, CANCEL, BUFFER and RESUME are our additions; so are SYSTEM messages, for clients that accept them. Every wrong
message is answered: by a TOKEN error if that ends a stream for which the client waits, by a MSG error otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal
from weakref import WeakValueDictionary

import msgspec
from typing_extensions import override

from tg_base.runtime import finish, take_turns
from tg_doors.lmtp.buffers import BufferId, Buffers, Content, join_contents
from tg_doors.lmtp.item_writers import StreamForm
from tg_doors.lmtp.mask import SLICE_BYTES, read_fields
from tg_doors.lmtp.messages import (
    LMTP_FIELDS,
    StreamId,
    StreamNotices,
    encode_error,
    encode_message,
    find_stream_id,
    split_message,
)
from tg_doors.lmtp.prompt import Prompt, read_prompt
from tg_doors.lmtp.request import (
    DEFAULT_TOP_LOGPROBS,
    GenerateBody,
    ScoreBody,
    StreamBody,
    TextBody,
    make_generate,
    make_score,
    read_generate,
)
from tg_doors.lmtp.resumable import (
    ResumeBody,
    digest_request,
    make_background,
    name_stream,
    resume,
)
from tg_doors.lmtp.stream_writer import LeavingWriter, StreamWriter, TokenBatch
from tg_gateway.dialects import Ask, Background, Catalogue, Conversation, FoundModel, Output, Socket, Writer
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode
from tg_schema.errors import BadRequest, NotFound, Unauthorized

PATIENCE_SECONDS: Final = 1.5
"""Seconds without an item after which a stream's client gets the reason. Processors report their load once a second."""
_ANSWERED_BY_STREAMS: Final = frozenset({"GENERATE", "SCORE", "RESUME"})


UNAVAILABLE: Final = "<unavailable>"
"""LMQL's clients ask again later."""
NEGOTIABLE: Final = ("SYSTEM", "ERRORS")
"""Extensions sent only to clients that have accepted them: a type of message, and kinds of errors."""
_ID_FEATURES: Final = frozenset({"prompt_ids", "logprobs", "end_token"})


Status = Literal["unavailable", "loading", "ready"]
"""A model's status; `loading` = the next request waits until it is loaded. LMQL's clients know only `unavailable`."""


class ModelInfoBody(msgspec.Struct, frozen=True):
    """The JSON of a MODEL_INFO; LMQL's clients name the model in `data` too."""

    stream_id: StreamId
    model: str
    data: Any = None


class HelloBody(msgspec.Struct, frozen=True):
    """The JSON of a HELLO."""

    accept: tuple[Annotated[str, msgspec.Meta(max_length=64)], ...]
    stream_id: StreamId | None = None


def encode_model_info(stream: int, found: FoundModel, catalogue: Catalogue) -> bytes:
    """The answer to a MODEL_INFO."""
    # A plain peer announces nothing, so assume that it serves the model.
    known = found.route.plain or found.model in catalogue.models()
    text = f"{found.model} (flow {found.route.flow})" if known else UNAVAILABLE
    status: Status = "unavailable" if not known else "loading" if found.loading else "ready"
    capabilities = _list_capabilities(found.features)
    told = {"stream_id": stream, "model_info": text, "status": status, "capabilities": capabilities}
    return encode_message(b"MSG", [told])


def encode_hello(stream: int | None, accepted: Set[str]) -> bytes:
    """The answer to a HELLO."""
    named = tuple(name for name in NEGOTIABLE if name in accepted)
    return encode_message(b"MSG", [{"stream_id": stream, "accepted": named}])


def _list_capabilities(features: Set[str]) -> Mapping[str, bool]:
    """The abilities of the model's processors: `ids` = GENERATE as LMQL asks for it, `packed_floats` = Base64 masks."""
    ids = features >= _ID_FEATURES
    return {
        "ids": ids,
        "score": features >= {"prompt_ids", "score"},
        "logit_bias": ids and "logit_bias" in features,
        "packed_floats": ids and "packed_floats" in features,
        "text": True,
        "raw_text": "raw" in features,
        "stop": "stop" in features,
        "seed": "seed" in features,
        "resume": True,
    }


class CancelBody(msgspec.Struct, frozen=True):
    """The JSON of a CANCEL."""

    stream_id: StreamId


class BufferBody(msgspec.Struct, frozen=True):
    """The JSON of a BUFFER."""

    buffer_id: BufferId
    append: Content = ()
    drop: bool = False
    stream_id: StreamId | None = None


Made = TextCompletionRequest | Callable[[], Awaitable[TextCompletionRequest]]
"""A request, or a coroutine function that makes it and yields to other tasks meanwhile."""


class LmtpConversation(Conversation):
    """One client's streams.

    Args:
        socket: its WebSocket.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._accepted: frozenset[str] = frozenset()
        self._buffers = Buffers()
        # Only running streams are here: each is removed with its task.
        self._leaving: WeakValueDictionary[int, LeavingWriter] = WeakValueDictionary()
        self._batch = TokenBatch(socket.send, asyncio.get_running_loop().call_soon)

    @override
    def take(self, message: bytes) -> None:
        kind, payload = split_message(message)
        try:
            handler = self._HANDLERS.get(kind)
            if handler is None:
                raise BadRequest(f"send TYPE and a JSON object, where TYPE is one of {', '.join(self._HANDLERS)}")
            # A client whose key was revoked may still cancel its streams.
            if self._socket.key is None and kind != "CANCEL":
                raise Unauthorized("the key is not valid any more; open another socket")
            # Check the size before reading, which would delay all other clients.
            self._socket.check_size(len(payload))
            handler[1](self, payload)
        except TgError as error:
            self._refuse(kind, find_stream_id(payload), error)

    def _refuse(self, kind: str, stream: int | None, error: TgError) -> None:
        # An error of a running stream would end it for the client.
        ends = stream is not None and kind in _ANSWERED_BY_STREAMS and not self._socket.is_running(stream)
        self._socket.send(encode_error(stream, error, typed="ERRORS" in self._accepted, ends=ends))

    def _generate(self, payload: bytes) -> None:
        body, mask = read_generate(payload)
        if body.mode == "text":
            # Refuses unknown fields. In token mode they are ignored, since LMQL's clients send some.
            decode(TextBody, payload)
        found = self._socket.catalogue.find_model(body.model)
        prompt = read_prompt(body.prompt, body.mode, self._buffers)
        tops = DEFAULT_TOP_LOGPROBS if body.mode == "ids" and body.top_logprobs is None else body.top_logprobs
        leave = None
        if body.buffer_id is not None:
            # Use the key of later requests that continue this one, so that they reach the processor where it is warm.
            prompt = msgspec.structs.replace(prompt, key=prompt.root)
            leave = self._plan_buffer(body, body.buffer_id, prompt)
        form = StreamForm(body.mode, body.max_tokens, tops, digest_request(body, prompt, mask))
        make = partial(make_generate, body, prompt, found)
        fields = read_fields(mask, found.features)

        async def make_later() -> TextCompletionRequest:
            return make(await take_turns(fields))

        made = make(finish(fields)) if len(mask) <= SLICE_BYTES else make_later
        self._ask(body, found, made, form, len(payload), leave=leave)

    def _plan_buffer(self, body: GenerateBody, name: BufferId, prompt: Prompt) -> Callable[[Content], None]:
        """Prepare what happens at the end of a stream that leaves a buffer."""
        if body.request_key is not None:
            raise BadRequest("buffer_id: a buffer belongs to its socket, and a stream with a request_key does not")
        self._check_name(name)
        beginning, root = prompt.content, prompt.root

        def leave(answer: Content) -> None:
            try:
                size = self._buffers.keep(name, join_contents(beginning, answer), root)
            except TgError as error:
                self._socket.send(encode_error(body.stream_id, error, typed="ERRORS" in self._accepted))
            else:
                self._tell_size(body.stream_id, name, size)

        return leave

    def _check_name(self, name: BufferId) -> None:
        if isinstance(name, str) and len(name) > self._socket.max_name:
            raise BadRequest(f"buffer_id may have at most {self._socket.max_name} characters")

    def _score(self, payload: bytes) -> None:
        body = decode(ScoreBody, payload)
        found = self._socket.catalogue.find_model(body.model)
        prompt = read_prompt(body.prompt, "ids", self._buffers)
        form = StreamForm("score", len(body.scored), request=digest_request(body, prompt))
        self._ask(body, found, make_score(body, prompt, found), form, len(payload))

    def _ask(
        self,
        body: StreamBody,
        found: FoundModel,
        made: Made,
        form: StreamForm,
        size: int,
        *,
        leave: Callable[[Content], None] | None = None,
    ) -> None:
        socket, stream = self._socket, body.stream_id
        self._check_new(stream)
        writer = form.make_writer(stream, self._batch, typed="ERRORS" in self._accepted)
        notices = StreamNotices(partial(self._send_system, stream)) if "SYSTEM" in self._accepted else None
        background: Background | None = None
        chosen: Writer[TextCompletionResponse] = writer
        fail: Callable[[TgError], Output] = writer.fail
        if body.request_key is not None:
            kept = name_stream(socket.key, body.request_key)
            background = make_background(kept, form, writer, None if notices is None else notices.start)
        elif leave is not None:
            chosen = self._leaving[stream] = LeavingWriter(writer, leave, ids=form.kind == "ids")
            fail = chosen.fail
        seconds = None if body.deadline_ms is None else body.deadline_ms / 1000
        if notices is not None:
            writer.on_begin = notices.begin

        asked = Ask(
            found.route,
            made,
            chosen,
            streaming=True,
            background=background,
            deadline=seconds,
            on_accepted=None if notices is None else notices.start,
            on_opening=None if notices is None else notices.open,
            fields=LMTP_FIELDS,
        )

        async def make(making: Callable[[], Awaitable[TextCompletionRequest]]) -> Ask:
            return replace(asked, request=await making())

        socket.ask(stream, found.route, size, lambda: make(made) if callable(made) else asked, fail)
        if notices is not None:
            # Only after `ask`, since a refused request was never queued.
            notices.queue(loading=found.loading)
            # Do not capture the body, whose mask may have megabytes: the timer outlives a quick stream.
            asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._explain, stream, body.model, notices)

    def _explain(self, stream: int, model: str, notices: StreamNotices) -> None:
        """Send the reason why a stream has not begun, if the processors report it."""
        if notices.taken or not self._socket.is_running(stream):
            return
        with suppress(NotFound):
            if self._socket.catalogue.find_model(model).busy:
                self._send_system(stream, "throttled")

    @override
    def drain(self) -> None:
        if "SYSTEM" in self._accepted:
            self._send_system(None, "draining")

    def _check_new(self, stream: int) -> None:
        # Two streams with one id could not be distinguished in the messages.
        if self._socket.is_running(stream):
            raise BadRequest("stream_id: a stream with this id is running on this socket; take another id")

    def _resume(self, payload: bytes) -> None:
        body = decode(ResumeBody, payload)
        stream, typed = body.stream_id, "ERRORS" in self._accepted
        self._check_new(stream)
        name = name_stream(self._socket.key, body.request_key)

        def make_writer(form: StreamForm) -> StreamWriter:
            return form.make_writer(stream, self._batch, typed=typed)

        def fail(error: TgError) -> bytes:
            return self._batch.take() + encode_error(stream, error, typed=typed, ends=True)

        self._socket.follow(stream, name, resume(self._socket.kept, name, body.after_seq, make_writer), fail)

    def _send_system(self, stream: int | None, kind: str) -> None:
        self._socket.send(encode_message(b"SYSTEM", [{"stream_id": stream, "kind": kind}]))

    def _send_model_info(self, payload: bytes) -> None:
        body = decode(ModelInfoBody, payload)
        catalogue = self._socket.catalogue
        self._socket.send(encode_model_info(body.stream_id, catalogue.find_model(body.model), catalogue))

    def _greet(self, payload: bytes) -> None:
        body = decode(HelloBody, payload)
        self._accepted = frozenset(body.accept).intersection(NEGOTIABLE)
        self._socket.send(encode_hello(body.stream_id, self._accepted))

    def _cancel(self, payload: bytes) -> None:
        stream = decode(CancelBody, payload).stream_id
        if not self._socket.is_running(stream):
            raise NotFound("stream_id: no stream with this id is running on this socket")
        leaving = self._leaving.get(stream)
        if leaving is not None:
            leaving.cancelled = True
        self._socket.cancel(stream)

    def _buffer(self, payload: bytes) -> None:
        body = decode(BufferBody, payload)
        self._check_name(body.buffer_id)
        if body.drop:
            self._buffers.drop(body.buffer_id)
        size = 0 if body.drop else self._buffers.append(body.buffer_id, body.append)
        self._tell_size(body.stream_id, body.buffer_id, size)

    def _tell_size(self, stream: int | None, name: BufferId, size: int) -> None:
        self._socket.send(encode_message(b"MSG", [{"stream_id": stream, "buffer_id": name, "size": size}]))

    # Functions of the class: bound methods would form a cycle with each conversation.
    _HANDLERS: Final[Mapping[str, tuple[type[msgspec.Struct], Callable[["LmtpConversation", bytes], None]]]] = {
        "GENERATE": (GenerateBody, _generate),
        "SCORE": (ScoreBody, _score),
        "MODEL_INFO": (ModelInfoBody, _send_model_info),
        "HELLO": (HelloBody, _greet),
        "CANCEL": (CancelBody, _cancel),
        "BUFFER": (BufferBody, _buffer),
        "RESUME": (ResumeBody, _resume),
    }
    BODIES: Final = {kind: body for kind, (body, _) in _HANDLERS.items()}
    """The words with which a client's message may begin, and what follows each."""
