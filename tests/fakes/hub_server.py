"""The Hugging Face hub's file download, as its client library speaks it: `/OWNER/NAME/resolve/REVISION/FILE`.

Headers as documented for the hub's `resolve` endpoint: the commit in `X-Repo-Commit`, the file's hash in `ETag`, the
kind of a refusal in `X-Error-Code`.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from typing_extensions import override

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REFUSALS = {"gone": (404, "RepoNotFound"), "gated": (403, "GatedRepo")}
"""By the repository's name."""


class HubHandler(BaseHTTPRequestHandler):
    """Serves `model.gguf` of any repository that is not among the refusals."""

    content: ClassVar[bytes] = b""
    asked: ClassVar[list[str]]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        status, code = self._found()
        body = self.content if status == 200 else b""
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _found(self) -> tuple[int, str]:
        match self.path.split("/"):
            case ["", _, name, "resolve", _, _] if name in REFUSALS:
                return REFUSALS[name]
            case ["", _, _, "resolve", _, "model.gguf"]:
                return 200, ""
            case _:
                return 404, "EntryNotFound"

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def hub_server(content: bytes) -> Iterator[tuple[str, list[str]]]:
    """A hub whose repositories hold `content`; gives its URL and the requests that it gets."""
    asked: list[str] = []
    handler = type("Handler", (HubHandler,), {"content": content, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
