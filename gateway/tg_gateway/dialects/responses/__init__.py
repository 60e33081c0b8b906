"""OpenAI's Responses API: `POST /v1/responses`, whole and streamed, and the responses that are kept."""

from tg_gateway.dialects.responses.dialect import MOUNTS

__all__ = ["MOUNTS"]
