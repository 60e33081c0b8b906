"""The Python blocks of a page, one after the other, as `python -m asyncio` would run them: with `await` everywhere."""

import ast
import asyncio
import contextlib
import inspect
import io
from types import CodeType
from typing import Any


class Interpreter:
    """Names that one block has made are there for the next."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"__name__": "docs"}

    async def run(self, code: str, place: str) -> str:
        """Run it, and give what it printed."""
        compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if compiled.co_flags & inspect.CO_COROUTINE:
                await eval(compiled, self._names)
            else:
                await asyncio.to_thread(self._call, compiled)
        return out.getvalue()

    def _call(self, code: CodeType) -> None:
        """In a thread, since a whole program has a loop of its own."""
        exec(code, self._names)
