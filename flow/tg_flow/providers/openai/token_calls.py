"""Vllm -> client: requests to the routes of vLLM that are beside OpenAI's."""

import msgspec


class TokenizeCall(msgspec.Struct, frozen=True):
    """The body of a `POST /tokenize`."""

    body: bytes


class CompletionCall(msgspec.Struct, frozen=True):
    """The body of a `POST /v1/completions`: a prompt that is no conversation."""

    body: bytes


class DetokenizeCall(msgspec.Struct, frozen=True):
    """The body of a `POST /detokenize`."""

    body: bytes
