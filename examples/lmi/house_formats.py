"""Formatters for the table `[gateway.lmi]`: questions come in, words go out, neither in LMI's shape."""

import json
from collections.abc import Mapping
from typing import Any

from tg_doors.lmi import OutputStep
from tg_schema.errors import BadRequest


def read_question(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """`{"question": TEXT, "words": N, "live": BOOL}` -> a request of LMI's; the header X-Seed is its seed."""
    asked = json.loads(body)
    if not asked["question"]:
        raise BadRequest("ask a question")
    parameters = {"max_new_tokens": asked.get("words", 30)}
    if "X-Seed" in headers:
        parameters["seed"] = int(headers["X-Seed"])
    return {"inputs": asked["question"], "parameters": parameters, "stream": asked.get("live", False)}


class Words:
    """A line for each token, and one for the end."""

    content_type = "application/x-ndjson"

    def __call__(self, step: OutputStep) -> str:
        """The line of a step."""
        if step.error is not None:
            line: dict[str, Any] = {"problem": step.error}
        elif step.last:
            line = {"answer": step.generated_text, "ended": step.finish_reason, "words": step.generated_tokens}
        else:
            line = {"word": step.text}
        return json.dumps(line, ensure_ascii=False) + "\n"


write_words = Words()
