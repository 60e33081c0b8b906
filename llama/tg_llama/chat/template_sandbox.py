"""A GGUF's chat template -> text: Jinja with the extensions that models use, in a sandbox and within a time limit.

A template is a program from an untrusted file. It can reach nothing outside the sandbox or make large values from
small ones, and it is interrupted if it does not end.
"""

import ctypes
import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar

from jinja2 import TemplateError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

RENDER_SECONDS = 5.0
"""Time limit of a template; real ones take a millisecond."""

MAX_OPERAND_LENGTH = 10_000
"""Largest operand of a multiplication in a template; a larger text or number is an attack."""

Result = TypeVar("Result")


class TemplateFailed(Exception):
    """The template is broken, or refuses this conversation."""


class TemplateEndless(Exception):
    """The template did not end within its time limit."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Disables the operators that make large values from small ones."""

    intercepted_binops = frozenset({"*", "**"})

    @override
    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for operand in (left, right):
            if not isinstance(operand, int | float) or abs(operand) > MAX_OPERAND_LENGTH:
                raise TemplateError("only small numbers can be multiplied")
        if operator == "**":
            raise TemplateError("there are no powers in a chat template")
        return super().call_binop(context, operator, left, right)


class _Interrupted(BaseException):
    """The template takes too long. It is a BaseException, so that nothing in Jinja catches it."""


_FAILURES = (
    *(TemplateError, SyntaxError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError),
)
"""The exceptions of a failing template."""


class SandboxedTemplate:
    """One template; any thread may render it.

    Args:
        source: its text.
        names: further variables, such as `bos_token`.

    Raises:
        TemplateFailed: the source is not valid Jinja.
    """

    def __init__(self, source: str, names: dict[str, str]) -> None:
        # These templates are written for the settings of Hugging Face's library.
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: time.strftime(form, datetime.now().astimezone().timetuple())
        # Jinja's own filter writes HTML escapes, which no model was trained with.
        environment.filters["tojson"] = lambda value, indent=None, **_: json.dumps(
            value, ensure_ascii=False, indent=indent
        )
        self._names = names
        try:
            self._template = environment.from_string(source)
        except _FAILURES:
            raise TemplateFailed from None

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> str:
        """The rendered conversation, up to where the answer begins. Call it through `within()`, which bounds its time.

        Raises:
            TemplateFailed: the template cannot express it.
        """
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, tools=tools or None, documents=None, **self._names
            )
        except _FAILURES:
            raise TemplateFailed from None

    def try_render(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> str:
        """As `render`; "" if the template refuses the conversation, as by "System role not supported"."""
        try:
            return self.render(messages, tools)
        except TemplateFailed:
            return ""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """The result of `work`, which renders templates, in a thread of its own.

    Raises:
        TemplateEndless: it took longer than `seconds`, and was interrupted.
        Exception: what `work` raised.
    """
    running = _Work(work)
    running.start()
    running.join(seconds)
    if running.is_alive():
        running.interrupt()
        raise TemplateEndless
    if running.failure is not None:
        raise running.failure
    return running.results[0]


class _Work(threading.Thread, Generic[Result]):
    """A thread that can be interrupted between two steps of a template."""

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__(name="chat-template", daemon=True)
        self._work = work
        self.results: list[Result] = []
        self.failure: TemplateFailed | None = None

    @override
    def run(self) -> None:
        try:
            self.results.append(self._work())
        except TemplateFailed as failure:
            self.failure = failure
        except _Interrupted:
            self.failure = TemplateFailed()

    def interrupt(self) -> None:
        """Make the thread end at its next step."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(_Interrupted))


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
