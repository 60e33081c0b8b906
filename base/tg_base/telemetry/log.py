"""Process -> stderr: structured logs, one line for each event, with the stream's id and without secrets.

JSON for machines, plain lines on a terminal. Logs of libraries use the same format.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter

from tg_base.telemetry.trace import add_ids

Form = Literal["auto", "json", "text"]
Level = Literal["debug", "info", "warning", "error"]

HIDDEN = "(hidden)"
MAX_HIDDEN_SECRETS = 256
"""Secrets known by their value, in addition to those of the environment; the newest are kept."""
_also_hidden: dict[str, None] = {}
_SECRET_NAME = re.compile(
    r"(?i)(token|secret|passw(or)?d|authorization|credentials?|(api|access|private|auth)[-_]?key)$"
)
_SECRET_TEXT = (
    r"(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}",
    (
        r"(?i:\b(?:api[-_]?key|access[-_]?key|auth[-_]?token|token|secret|password|authorization)"
        r"[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s+)?)[^\s\"',}]{4,}"
    ),
    r"\b(?:sk|pk|hf|tg|xai|gsk)[-_](?=[\w-]*\d)[\w-]{16,}",
    r"\bAKIA[0-9A-Z]{12,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"(?<=://)[^\s/@]+:[^\s/@]+(?=@)",
)
_HEXADECIMAL = re.compile(r"[0-9a-f-]*")
"""Ids, which are new in every line. `_SECRET_TEXT` finds nothing in them, but a known secret may look like one."""
_NEVER = r"(?!)"
_PLAIN = (int, float, type(None))
CACHED_TEXTS = 1024
"""Texts of log lines whose redacted form is remembered."""
MAX_CACHED_CHARACTERS = 64
"""Longer texts are searched anew each time, so that the cache stays small."""
_MIN_SECRET_CHARACTERS = 8
"""Shorter values of variables are not hidden: they may be ordinary words."""


def hide_in_logs(secret: str) -> None:
    """Hide this value in all log lines of this process from now on, like the secrets of the environment."""
    if len(secret) >= _MIN_SECRET_CHARACTERS and secret not in _also_hidden:
        _also_hidden[secret] = None
        while len(_also_hidden) > MAX_HIDDEN_SECRETS:
            del _also_hidden[next(iter(_also_hidden))]


class Redaction:
    """A structlog processor that hides known and probable secrets in fields, messages and tracebacks.

    Args:
        environment: the values of variables with a secret's name are hidden everywhere, like those given to
            `hide_in_logs`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._known = {value for name, value in environment.items() if _names_secret(name, value)}
        self._newest: str | None = None
        self._learn()

    def _learn(self) -> None:
        # The longest first: if a secret contains another one, it is hidden whole.
        exact = [re.escape(value) for value in sorted({*self._known, *_also_hidden}, key=len, reverse=True)]
        pattern = re.compile("|".join((*exact, *_SECRET_TEXT)))
        self._hide = partial(pattern.sub, HIDDEN)
        self._hide_known = partial(re.compile("|".join(exact) or _NEVER).sub, HIDDEN)
        # Most texts of a log are the same in every line, and a search for secrets costs 4 us.
        self._hide_short = lru_cache(CACHED_TEXTS)(self._hide)

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Hide secrets in place."""
        if _also_hidden and (newest := next(reversed(_also_hidden))) != self._newest:
            self._newest = newest
            self._learn()
        for name, value in event.items():
            if not isinstance(value, _PLAIN):
                event[name] = HIDDEN if _is_secret_name(name) else self._clean(value)
        return event

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            if _HEXADECIMAL.fullmatch(value):
                return self._hide_known(value)
            return self._hide_short(value) if len(value) <= MAX_CACHED_CHARACTERS else self._hide(value)
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Mapping):
            return self({}, "", {str(name): inner for name, inner in value.items()})
        if isinstance(value, list | tuple | set):
            return [self._clean(inner) for inner in value]
        return self._clean(str(value))


class LogStream:
    """Drops the lines that cannot be written, so that a full disk fails no request.

    Args:
        stream: standard error; None = this process was started without it.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.terminal = stream is not None and stream.isatty()

    def write(self, text: str) -> None:
        """Write, if that is possible."""
        # A failure of the log has nowhere to be reported. A closed file object raises a ValueError.
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        with suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()


def configure_log(
    form: Form,
    level: Level,
    about: Mapping[str, str | int] | None = None,
) -> None:
    """Configure logging for the whole process, to stderr. Call it once, before anything is logged.

    Lines that cannot be written are lost: a full disk ends neither a request nor the process.

    Args:
        form: auto = text on a terminal, JSON lines otherwise.
        level: the lowest level that is written.
        about: fields of every line, which name the process.
    """
    stream = LogStream(sys.stderr)
    terminal = stream.terminal
    text = form == "text" or (form == "auto" and terminal)
    before: list[structlog.typing.Processor] = [
        add_ids,
        structlog.processors.format_exc_info,
        Redaction(os.environ),
        # After the redaction, which need not search our own fields.
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([_add(about)] if about else []),
    ]
    colors, show = terminal and "NO_COLOR" not in os.environ, structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=show) if text else _json
    structlog.configure(
        processors=[*before, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # One write per line: several workers share the stream, and with PYTHONUNBUFFERED `print` writes in pieces.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    steps = [ProcessorFormatter.remove_processors_meta, renderer]
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=before, processors=steps))
    logging.basicConfig(handlers=[handler], level=max(logging.getLevelName(level.upper()), logging.WARNING), force=True)


def _add(about: Mapping[str, str | int]) -> structlog.typing.Processor:
    def add(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(about)
        return event

    return add


@lru_cache(CACHED_TEXTS)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _names_secret(name: str, value: str) -> bool:
    words = {"TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIALS"}
    parts = name.upper().split("_")
    return len(value) >= _MIN_SECRET_CHARACTERS and not words.isdisjoint(parts) and parts[-1] != "FILE"


def _json(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    head = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    return msgspec.json.encode(head | dict(event), enc_hook=str).decode()
