"""OpenAI's Responses API: `POST /v1/responses`, whole and streamed, and what is kept of it."""

from tg_gateway.dialects.responses.mounts import RESPONSES_MOUNTS

__all__ = ["RESPONSES_MOUNTS"]
