"""Functions of other packages -> custom forms of requests and answers; doors/docs/lmi.md describes them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from typing_extensions import override

from tg_base.runtime import load_function
from tg_doors.lmi.invocation import PayloadError
from tg_doors.lmi.parameters import Order
from tg_doors.tgi import TokenReader
from tg_gateway.dialects import Writer
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.errors import BadRequest

INPUT_GROUP: Final = "tokengrid.lmi_input_formatters"
OUTPUT_GROUP: Final = "tokengrid.lmi_output_formatters"
"""Groups of entry points."""
_ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {INPUT_GROUP: ("body", "headers"), OUTPUT_GROUP: ("step",)}
"""The arguments of the functions of a group."""


@dataclass(frozen=True, slots=True)
class OutputStep:
    """The argument of an output formatter: a token, or the end.

    Attributes:
        inputs: the text of the request.
        parameters: the parameters of the request, unchanged.
        first: whether it is the first call for this answer.
        last: whether it is the last call; its token has the id -1 and no text.
        id: the id of the token; -1 = unknown.
        text: the text of the token.
        log_prob: the log-probability of the token; None = unknown.
        generated_text: in the last call, the whole text; "" before.
        finish_reason: in the last call: "length", "eos_token", "stop_sequence" or, if the answer failed, "error".
        generated_tokens: in the last call, how many tokens there are.
        error: why the answer failed.
    """

    inputs: str
    parameters: Mapping[str, Any]
    first: bool
    last: bool = False
    id: int = -1
    text: str = ""
    log_prob: float | None = None
    generated_text: str = ""
    finish_reason: str | None = None
    generated_tokens: int | None = None
    error: str | None = None


InputFormatter = Callable[[bytes, Mapping[str, str]], Mapping[str, Any]]
"""Body and headers of a request -> the request as LMI's schema has it. It raises `BadRequest` with a sentence for the
client. For ValueError, TypeError and LookupError, such as a missing field causes, the client gets a sentence of
ours."""
OutputFormatter = Callable[[OutputStep], str | bytes]
"""A step of an answer -> the text to send. The function's attribute `content_type`, if it has one, is the header."""


def load_formatter(name: str, group: str, *place: str) -> Callable[..., Any]:
    """The function of an entry point, or `module:function`.

    Args:
        name: the name in the configuration.
        group: the group of entry points.
        place: the place of the name, within the table `[gateway]`.

    Raises:
        BadRequest: the function does not exist, or cannot be called this way.
    """
    try:
        found = load_function(group, name, "formatter")
    except TgError as error:
        raise BadRequest(error.message).at(*place) from None
    # Check this at start-up, since a wrong call later would look like a malformed body. Some functions written in C
    # have no signature to inspect.
    with suppress(ValueError):
        try:
            signature(found).bind(*_ARGUMENTS[group])
        except TypeError:
            arguments = " and ".join(_ARGUMENTS[group])
            raise BadRequest(f'"{name}" must be a function of {arguments}').at(*place) from None
    return found


def translate_body(formatter: InputFormatter, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body in LMI's shape.

    Raises:
        PayloadError: the formatter cannot read it.
    """
    try:
        return encode(dict(formatter(body, headers)))
    except BadRequest as error:
        raise PayloadError(error.message) from None
    except (ValueError, TypeError, LookupError, AttributeError):
        # The exceptions of code that expected another form.
        raise PayloadError("the body is not in the form that this endpoint's input formatter reads") from None


class CustomWriter(Writer[TextCompletionResponse]):
    """Writes the output formatter's text for each token, and for the end.

    Args:
        order: the request.
        formatter: the function.
    """

    keep_alive = b""

    def __init__(self, order: Order, formatter: OutputFormatter) -> None:
        self.content_type = getattr(formatter, "content_type", "application/json")
        self._order = order
        self._formatter = formatter
        self._reader = TokenReader()
        self._first = True

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        steps = [step for step in self._reader.read(record) if not step.token.special]
        return b"".join([self._format(id=step.token.id, text=step.text, log_prob=step.token.logprob) for step in steps])

    @override
    def end(self) -> bytes:
        reader, order = self._reader, self._order
        return self._format(
            last=True,
            generated_text=order.prefix + reader.text,
            finish_reason=reader.name_ending(order.kept_stops),
            generated_tokens=reader.generated_tokens,
        )

    @override
    def fail(self, error: TgError) -> bytes:
        return self._format(last=True, finish_reason="error", error=error.message)

    def _format(self, **fields: Any) -> bytes:
        step = OutputStep(self._order.text, self._order.given, self._first, **fields)
        self._first = False
        output = self._formatter(step)
        return output.encode() if isinstance(output, str) else output
