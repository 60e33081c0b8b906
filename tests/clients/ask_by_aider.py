"""aider, unmodified, as one command for each question: OpenAI's chat. It has no tools: an answer's text has its edits.

python ask_by_aider.py URL TOKEN MODEL
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from asking import ASK_NAME, COUNT, HELLO, NAME, TOO_LONG, tell

OPTIONS = ("--no-git", "--yes-always", "--no-pretty", "--no-check-update", "--analytics-disable")
MARK = "> "
"""Before what aider itself says, in the chat that it keeps."""


def run(model: str, question: str, *more: str, chat: str = "chat") -> tuple[str, str]:
    """The model's words after the question, and aider's own."""
    asked, kept = Path(f"{chat}.txt"), Path(f"{chat}.md")
    asked.write_text(question, "utf-8")
    files = ("--message-file", str(asked), "--chat-history-file", str(kept))
    command = (str(Path(sys.executable).with_name("aider")), "--model", f"openai/{model}", *OPTIONS, *files, *more)
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    lines = kept.read_text("utf-8").rpartition("\n#### ")[2].splitlines()[1:]
    own = [line for line in lines if line.startswith(MARK)]
    return "\n".join(line for line in lines if line not in own).strip(), "\n".join(own)


def failed(model: str, question: str, *more: str, chat: str) -> dict[str, str]:
    """What aider tells of an error; the count of tokens is none."""
    said, own = run(model, question, *more, chat=chat)
    tells = any(word in own for word in ("token limit", "litellm."))
    return {"error": "Error" if tells else "", "message": f"{own[-1000:]} {said}"}


def main(url: str, token: str, model: str) -> None:
    """Ask at its door."""
    os.environ.update(OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY=token)

    async def text() -> object:
        return {"whole": run(model, HELLO, "--no-stream")[0], "streamed": run(model, HELLO)[0]}

    async def second_turn() -> object:
        run(model, NAME, chat="talk")
        return {"history": run(model, ASK_NAME, "--restore-chat-history", chat="talk")[0]}

    async def too_long() -> object:
        return failed(model, TOO_LONG, chat="long")

    async def cut() -> object:
        # It tries again for more than a minute.
        ways = {"streamed": "--stream", "whole": "--no-stream"}
        runs = [asyncio.to_thread(failed, model, COUNT, option, chat=way) for way, option in ways.items()]
        seen = await asyncio.gather(*runs)
        return dict(zip(ways, seen, strict=True))

    tell({"OpenAI chat": {ask.__name__: ask for ask in (text, second_turn, too_long, cut)}})


if __name__ == "__main__":
    main(*sys.argv[1:])
