"""Plan -> text-generation-inference's own API over a loopback socket, after its published description.

Its tokenizer has a token for each character, number 1000 and above, and begins each prompt with token 1. What goes
wrong with a stream is an event after status 200, a wrong field among it.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.loopback_server import LoopbackServer, Refused
from tests.fakes.plan import Asked, Plan
from tests.fakes.strict import Strict
from tests.fakes.tgi_server import failed
from tg_schema import Sampling, TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

BEGIN = 1
FIRST = 1000
END = 2
END_TEXT = "</s>"

_KINDS: dict[type[TgError], tuple[str, str]] = {
    BadRequest: ("validation", "Input validation error: `temperature` must be strictly positive"),
    ContextLengthExceeded: (
        "validation",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    ),
    RateLimited: ("overloaded", "Model is overloaded"),
    Unavailable: ("generation", "Request failed during generation: Server error: CUDA error"),
}
_STATUS: dict[type[TgError], int] = {ProviderAuth: 401, NotFound: 404}


class Grammar(Strict, frozen=True):
    type: str
    value: Any


class Parameters(Strict, frozen=True, kw_only=True):
    do_sample: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    truncate: int | None = None
    top_n_tokens: int | None = None
    grammar: Grammar | None = None
    adapter_id: str | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    best_of: int | None = None


class GenerateBody(Strict, frozen=True):
    inputs: str
    parameters: Parameters = Parameters()


class TokenizeBody(Strict, frozen=True):
    inputs: str
    add_special_tokens: bool = True


class ChatTokenizeBody(Strict, frozen=True):
    messages: tuple[dict[str, Any], ...]
    model: str = "tgi"
    tools: tuple[dict[str, Any], ...] = ()


_BODIES: dict[str, type[Strict]] = {
    "/generate": GenerateBody,
    "/generate_stream": GenerateBody,
    "/tokenize": TokenizeBody,
    "/chat_tokenize": ChatTokenizeBody,
}


class TgiGenerateServer(LoopbackServer):
    """No key; no route for chats. Each piece of a plan's text is one token of that text.

    Attributes:
        bodies: of all requests, checked.
        without_prefill: whether it tells no tokens of prompts, as builds without that do.
    """

    keep_alive: ClassVar[bytes] = b":\n\n"

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[Any] = []
        self.without_prefill = False

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        kind = _BODIES.get(request.path_qs)
        if request.method != "POST" or kind is None:
            raise Refused(web.Response(status=404))
        try:
            read = msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise Refused(failed(422, "validation", str(error))) from None
        self.bodies.append(read)
        if not isinstance(read, GenerateBody):
            return Asked("tgi", ())
        if wrong := _wrong(read.parameters, streamed=request.path_qs == "/generate_stream"):
            raise Refused(web.Response(content_type="text/event-stream", body=failure("validation", wrong)))
        wanted = read.parameters
        return Asked("tgi", (), sampling=Sampling(stop=wanted.stop, seed=wanted.seed, logprobs=wanted.top_n_tokens))

    @override
    def whole(self, request: web.Request, plan: Plan, asked: Asked) -> web.Response | None:
        body = self.bodies[-1]
        if isinstance(body, TokenizeBody):
            return web.json_response(_tokens(body.inputs, begin=body.add_special_tokens))
        if isinstance(body, ChatTokenizeBody):
            text = "".join(message["content"] for message in body.messages)
            return web.json_response({"tokenize_response": _tokens(text, begin=True), "templated_text": text})
        if request.path_qs == "/generate_stream":
            return None
        prompt = _tokens(body.inputs, begin=True)[-(body.parameters.truncate or 2**31) :]
        prefill = [{**token, "logprob": -0.5 if number else None} for number, token in enumerate(prompt)]
        details = {"finish_reason": "length", "generated_tokens": 1, "seed": None, "tokens": []}
        prefill = [] if self.without_prefill else prefill
        return web.json_response({"generated_text": "H", "details": {**details, "prefill": prefill}})

    @override
    def refusal(self, plan: Plan) -> web.Response:
        if plan.error in _STATUS:
            return web.Response(status=_STATUS[plan.error])
        return web.Response(content_type="text/event-stream", body=self.error(plan))

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        return ()

    @override
    def piece(self, text: str) -> bytes:
        return event(token(text, self.bodies[-1].parameters.top_n_tokens or 0))

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        """The last token: a stop string if there is one, else the end, or half a character at the limit."""
        stop = asked.sampling.stop
        text, reason = (stop[0], "stop_sequence") if stop else (END_TEXT, "eos_token")
        if plan.finish == "length":
            text, reason = "", "length"
        counts = (plan.counts.tokens_out, plan.counts.tokens_in) if plan.counts is not None else (7, 11)
        details = {"finish_reason": reason, "generated_tokens": counts[0], "seed": asked.sampling.seed}
        last = token(text, 0, special=text == END_TEXT)
        yield event(last, "".join(plan.text) + stop[0] if stop else "", {**details, "input_length": counts[1]})

    @override
    def error(self, plan: Plan) -> bytes:
        return failure(*_KINDS[plan.error])


def token(text: str, alternatives: int, *, special: bool = False) -> dict[str, Any]:
    """A token of an event, with as many alternatives as were asked for."""
    number = END if special else FIRST + len(text)
    said = {"id": number, "text": text, "logprob": -0.5, "special": special}
    others = [{**said, "id": number + n, "logprob": -0.5 - n} for n in range(alternatives)]
    return {"token": said, **({"top_tokens": others} if others else {})}


def event(said: dict[str, Any], text: str | None = None, details: dict[str, Any] | None = None) -> bytes:
    """One event of a stream."""
    shown = {"index": 1, **said, "generated_text": text, "details": details}
    return b"data:" + msgspec.json.encode(shown) + b"\n\n"


def failure(kind: str, message: str) -> bytes:
    """An error in a stream."""
    return b"data:" + msgspec.json.encode({"error": message, "error_type": kind}) + b"\n\n"


def _tokens(text: str, *, begin: bool) -> list[dict[str, Any]]:
    ids = [*([BEGIN] if begin else []), *[FIRST + ord(character) for character in text]]
    return [{"id": number, "text": "<s>" if number == BEGIN else chr(number - FIRST)} for number in ids]


def _wrong(asked: Parameters, *, streamed: bool) -> str | None:
    """What the server refuses, as far as its description says so."""
    fractions = {"top_p": asked.top_p, "typical_p": asked.typical_p}
    outside = [name for name, value in fractions.items() if value is not None and not 0 < value < 1]
    positive = {
        name: getattr(asked, name)
        for name in ("temperature", "top_k", "repetition_penalty", "max_new_tokens", "truncate")
    }
    outside += [name for name, value in positive.items() if value is not None and value <= 0]
    if asked.best_of is not None or (streamed and asked.decoder_input_details):
        outside.append("best_of or decoder_input_details")
    if len(asked.stop) > 4 or (asked.top_n_tokens or 0) > 5 or (asked.seed or 0) < 0:
        outside.append("stop, top_n_tokens or seed")
    return f"Input validation error: {', '.join(outside)}" if outside else None
