"""Refusal -> body of the answer, in the shape of the API that the client speaks."""

from typing import Any

import msgspec

from tg_picker.extproc.decision import Refused

_OPENAI_TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 413: "invalid_request_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_MESSAGES_PATH = "/v1/messages"


def write_refusal(refused: Refused, path: str) -> bytes:
    """JSON that OpenAI's or Anthropic's SDK makes the right exception of."""
    return msgspec.json.encode(_anthropic(refused) if path.startswith(_MESSAGES_PATH) else _openai(refused))


def _openai(refused: Refused) -> dict[str, Any]:
    kind = _OPENAI_TYPES.get(refused.status, "server_error" if refused.status >= 500 else "rate_limit_error")
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": refused.reason}}


def _anthropic(refused: Refused) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPES.get(refused.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}}
