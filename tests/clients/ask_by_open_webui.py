"""Open WebUI, unmodified but for what runs models in its own process: its server, asked as its page asks it.

python ask_by_open_webui.py URL TOKEN MODEL

The page posts a question to a chat that the server keeps, and shows the answer that the server writes into it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, WEATHER, WHO, Ask, Person, tell

START_SECONDS = 300.0
ANSWER_SECONDS = 60.0
TOOL = '''
class Tools:
    def get_weather(self, city: str) -> str:
        """
        Get the weather of a city.
        :param city: The city.
        """
        return f"sunny in {city}"
'''


class Page:
    """What the page asks of its server, by a user who has just signed up: the first one may configure it."""

    def __init__(self, url: str) -> None:
        self._url = url
        # This process is told to reach nobody, and its server is on this machine.
        self._opener = build_opener(ProxyHandler({}))
        self._token = ""
        person = {"name": "Anna", "email": "anna@example.com", "password": "a-Secret-7"}
        self._token = self.call("/api/v1/auths/signup", person)["token"]

    def call(self, path: str, body: object = None) -> Any:
        """The answer's JSON."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        with self._opener.open(Request(self._url + path, data, headers)) as answer:
            return json.load(answer)

    def ask(self, model: str, question: str, after: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The answer as the chat has it when it is done; `after` is an earlier one, of the same chat."""
        asked, answer = str(uuid.uuid4()), str(uuid.uuid4())
        parent = after["id"] if after else None
        turn: dict[str, Any] = {"id": asked, "parentId": parent, "childrenIds": [], "role": "user", "content": question}
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "user_message": turn,
            "message_ids": [{"model_id": model, "message_id": answer}],
            "parent_id": parent,
            "session_id": "page",
            "stream": True,
        }
        chat = self.call("/api/chat/completions", body | ({"chat_id": after["chat"]} if after else {}) | more)[
            "chat_id"
        ]
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            kept: dict[str, Any] = self.call(f"/api/v1/chats/{chat}")["chat"]["history"]["messages"][answer]
            if kept.get("done"):
                return kept | {"chat": chat}
            assert time.monotonic() < end, kept
            time.sleep(0.05)


def features(page: Page, model: str, form: Mapping[str, Any]) -> Mapping[str, Ask]:
    """What is asked of a model of one connection; `form` says in its API that the answer is a person."""

    def failed(question: str, **more: Any) -> dict[str, str]:
        answer = page.ask(model, question, **more)
        error = answer.get("error")
        return {"error": "Error" if error else "", "message": error["content"] if error else answer["content"]}

    async def text() -> object:
        return {
            "whole": page.ask(model, HELLO, stream=False)["content"],
            "streamed": page.ask(model, HELLO)["content"],
        }

    async def tools() -> object:
        steps = page.ask(model, WEATHER, tool_ids=["weather"])["output"]
        (called,) = [json.loads(step["arguments"]) for step in steps if step["type"] == "function_call"]
        return {"called": called, "said": steps[-1]["content"][0]["text"]}

    async def schema() -> object:
        answer = page.ask(model, WHO, params={"custom_params": form})
        return {"custom parameter": json.loads(answer["content"])}

    async def second_turn() -> object:
        return {"history": page.ask(model, ASK_NAME, page.ask(model, NAME))["content"]}

    async def too_long() -> object:
        return failed(TOO_LONG)

    async def cut() -> object:
        return {"streamed": failed(COUNT), "whole": failed(COUNT, stream=False)}

    asks: tuple[Ask, ...] = (text, tools, schema, second_turn, too_long, cut)
    return {ask.__name__: ask for ask in asks}


@contextmanager
def running_server() -> Iterator[str]:
    """Its URL, while it runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    more = {"DATA_DIR": str(Path.cwd() / "data"), "OFFLINE_MODE": "true", "RAG_EMBEDDING_ENGINE": "openai"}
    command = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", port]
    with (
        Path("server.log").open("w") as log,
        subprocess.Popen(command, env={**os.environ, **more}, stdout=log, stderr=log) as server,
    ):
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGKILL)


def wait_until_healthy(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Its first start makes a database."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            build_opener(ProxyHandler({})).open(f"{url}/health").close()
        except URLError:
            waits = server.poll() is None and time.monotonic() < end
            assert waits, Path("server.log").read_text("utf-8")[-2000:]
            time.sleep(0.2)
        else:
            return


def main(url: str, token: str, model: str) -> None:
    """Ask by each of its kinds of connections, which its administrator enters."""
    with running_server() as served:
        page = Page(served)
        openai = {
            "ENABLE_OPENAI_API": True,
            "OPENAI_API_BASE_URLS": [f"{url}/v1"] * 2,
            "OPENAI_API_KEYS": [token] * 2,
            "OPENAI_API_CONFIGS": {"0": {"prefix_id": "chat"}, "1": {"prefix_id": "made", "api_type": "responses"}},
        }
        page.call("/openai/config/update", openai)
        ollama = {
            "ENABLE_OLLAMA_API": True,
            "OLLAMA_BASE_URLS": [url],
            "OLLAMA_API_CONFIGS": {"0": {"prefix_id": "ollama", "key": token}},
        }
        page.call("/ollama/config/update", ollama)
        tool = {"id": "weather", "name": "weather", "meta": {"description": "The weather."}, "content": TOOL}
        page.call("/api/v1/tools/create", tool)
        page.call("/api/models")
        shape = {"name": "person", "schema": Person.model_json_schema()}
        doors: dict[str, tuple[str, dict[str, Any]]] = {
            "OpenAI chat": (f"chat.{model}", {"response_format": {"type": "json_schema", "json_schema": shape}}),
            "Responses": (f"made.{model}", {"text": {"format": {"type": "json_schema", **shape}}}),
            "Ollama chat": (f"ollama.{model}:latest", {"format": shape["schema"]}),
        }
        tell({door: features(page, *how) for door, how in doors.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
