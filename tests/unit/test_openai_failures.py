"""Our errors as OpenAI's SDKs read them: the object, its fields, and whether they try again."""

import json

import msgspec
import pytest
from openai.types import ErrorObject as PublishedError

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat.failures import decode_body, describe_error, encode_failure, refuse
from tg_schema import TgError
from tg_schema.errors import (
    AccessDenied,
    BadRequest,
    ContentFilter,
    IncompleteStream,
    Internal,
    NotFound,
    ProviderAuth,
    RateLimited,
    SlowConsumer,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)

INVALID, SERVER = "invalid_request_error", "server_error"


@pytest.mark.parametrize(
    ("kind", "error_type", "param", "code", "retry"),
    [
        (BadRequest, INVALID, None, None, "false"),
        (Unauthorized, INVALID, None, "invalid_api_key", "false"),
        (AccessDenied, INVALID, None, "access_denied", "false"),
        (NotFound, INVALID, "model", "model_not_found", "false"),
        (TooLarge, INVALID, None, "request_too_large", "false"),
        (ContentFilter, INVALID, None, "content_filter", "false"),
        (RateLimited, "rate_limit_error", None, "rate_limit_exceeded", "true"),
        (Timeout, SERVER, None, "timeout", "true"),
        (Unavailable, SERVER, None, "unavailable", "true"),
        (IncompleteStream, SERVER, None, "incomplete_stream", "true"),
        (ProviderAuth, SERVER, None, "provider_auth", "false"),
        (SlowConsumer, SERVER, None, "slow_consumer", "false"),
        (Internal, SERVER, None, "internal", "false"),
    ],
)
def test_every_error_has_its_words(
    kind: type[TgError], error_type: str, param: str | None, code: str | None, retry: str
) -> None:
    error = kind("what happened")
    said = {"message": "what happened", "type": error_type, "param": param, "code": code}
    assert json.loads(encode_failure(error)) == {"error": said}
    answer = refuse(error, error.status, known_path=True)
    assert (answer.status, json.loads(answer.body)) == (error.status, {"error": said})
    assert answer.headers == {"x-should-retry": retry}
    PublishedError.model_validate(said, strict=True)


def test_an_unknown_path_is_about_no_field() -> None:
    answer = refuse(NotFound("no such path"), 404, known_path=False)
    said = {"message": "no such path", "type": INVALID, "param": None, "code": None}
    assert json.loads(answer.body) == {"error": said}


class _Body(msgspec.Struct):
    names: list[str] = []


@pytest.mark.parametrize(
    ("body", "param"),
    [(b'{"names":["a",1]}', "names[1]"), (b'{"names":1}', "names"), (b"[]", None), (b"{", None), (b"\xff", None)],
)
def test_a_wrong_field_is_named(body: bytes, param: str | None) -> None:
    with pytest.raises(BadRequest) as raised:
        decode_body(_Body, body)
    assert describe_error(raised.value).param == param
    assert isinstance(raised.value, InvalidParameter) == (param is not None)


def test_unknown_fields_are_ignored() -> None:
    assert decode_body(_Body, b'{"names":["a"],"else":1}').names == ["a"]
