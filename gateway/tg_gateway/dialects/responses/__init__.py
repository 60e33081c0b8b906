"""OpenAI's Responses API: `POST /v1/responses`, whole and streamed, and what is kept of it."""

from tg_gateway.dialects.responses.dialect import MOUNTS

__all__ = ["MOUNTS"]
