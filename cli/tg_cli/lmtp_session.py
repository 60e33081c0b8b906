"""Lines -> LMTP -> stdout: one stream after the other."""

import re
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tg_cli.endings import Failure
from tg_cli.gateway_choice import open_gateway
from tg_cli.invocation import handle_line
from tg_cli.line_reader import LineReader
from tg_cli.output import Output
from tg_cli.pipe_reader import open_reader
from tg_client.transport import LmtpItem, LmtpSocket, open_lmtp
from tg_schema import encode

_PARAMETER = re.compile(r"([A-Za-z_]\w*)=(\S+)")


def parse_line(line: str) -> tuple[str | list[int], dict[str, Any]]:
    """The prompt and the parameters after it: words such as `name=value`, whose value is JSON or else text.

    A prompt that is a JSON list of integers is a list of token ids.
    """
    words = line.strip().split(" ")
    parameters: dict[str, Any] = {}
    while words and (found := _PARAMETER.fullmatch(words[-1])):
        # Go from the last word to the first, so that of two parameters with one name the last one wins.
        parameters.setdefault(found[1], _read_value(found[2]))
        words.pop()
    prompt = " ".join(words)
    try:
        return msgspec.json.decode(prompt, type=list[int]), parameters
    except msgspec.DecodeError:
        return prompt, parameters


def _read_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


QUIT = "quit"
_SAID: Final = MappingProxyType(
    {
        "model": "it is the command's argument",
        "prompt": "write the prompt in front of the parameters",
        "stream_id": "the command numbers its streams",
    }
)
"""Fields of GENERATE that cannot be parameters of a line, and why."""


async def run_lmtp(url: str | None, timeout: float, model: str) -> None:
    """Answer each line until the input ends or a line is `QUIT`. A connection lost between two lines is reopened.

    Raises:
        Failure: an answer failed, in a pipe.
        TgError: there is no gateway, or in a pipe it was lost.
    """
    reader = open_reader()
    async with open_gateway(url) as chosen:
        line: str | None = ""
        while line is not None:
            async with open_lmtp(chosen, timeout, model) as socket:
                line = await _talk(reader, socket, line)


async def _talk(reader: LineReader, socket: LmtpSocket, line: str | None) -> str | None:
    """Answer a line and those that follow. If the connection is lost, returns the line to ask again, else None."""
    raw = await socket.knows_raw_text()
    while line is not None and line.strip() != QUIT:
        if line.strip():
            if socket.lost:
                return line
            await handle_line(_answer(socket, line, raw=raw), interactive=reader.interactive)
        line = await reader.read()
    return None


def _make_fields(line: str, *, raw: bool) -> dict[str, Any]:
    """The fields of a GENERATE. Unless `raw`, a text becomes a turn of the user.

    Raises:
        Failure: a parameter must be given in another way.
    """
    prompt, parameters = parse_line(line)
    for name in _SAID:
        if name in parameters:
            raise Failure(f"{name} is no parameter of a line: {_SAID[name]}")
    if isinstance(prompt, list):
        return {"prompt": prompt, **parameters}
    return {"mode": "text", "prompt": prompt if raw else [{"role": "user", "content": prompt}], **parameters}


async def _answer(socket: LmtpSocket, line: str, *, raw: bool) -> None:
    fields = _make_fields(line, raw=raw)
    async with Output() as output, aclosing(socket.generate(fields)) as items:
        async for item in items:
            if item.error is not None:
                raise Failure(item.error)
            if item.token is None:
                await output.text(item.text)
            else:
                await output.json(_describe(item))


def _describe(item: LmtpItem) -> bytes:
    fields = {"token": item.token, "logprob": item.logprob, "finish_reason": item.finish_reason}
    return encode({**fields, "top_logprobs": item.top_logprobs})
