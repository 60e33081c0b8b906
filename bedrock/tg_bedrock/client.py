"""Bedrock -> boto3 -> socket: only this file calls the SDK. Everything in it blocks and must run in a thread.

boto3 signs and sends requests, and parses the frames, checksums included. Its retries and its read timeout are
switched off, because `tg_base.llm` has both.
"""

import asyncio
import functools
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import msgspec
from botocore.config import Config
from botocore.eventstream import ParserError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EventStreamError,
    HTTPClientError,
    InvalidEndpointConfigurationError,
    InvalidRegionError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session
from botocore.tokens import ScopedEnvTokenProvider
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from tg_base.llm import (
    BROKEN,
    CONNECT_TIMEOUT_SECONDS,
    MAX_EVENT_BYTES,
    SLOW,
    LlmChunk,
    check_numbers,
    event_error,
    find_request_id,
    retry_after,
    status_error,
    unreachable,
)
from tg_base.telemetry import trace
from tg_bedrock.abortable_session import AbortableSession
from tg_bedrock.bounded_response import EndlessError, bound_body
from tg_bedrock.stream import StreamDecoder
from tg_schema import ModelInfo, TgError
from tg_schema.errors import BadRequest, IncompleteStream, ProtocolError, ProviderAuth, Timeout

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient
    from types_boto3_bedrock.client import BedrockClient as ControlClient
    from types_boto3_bedrock_runtime.client import BedrockRuntimeClient
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef

KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
"""The variable in which AWS's tools look for a Bedrock API key."""

_NO_CREDENTIALS = (
    "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or name a profile of ~/.aws/credentials in AWS_PROFILE or in the provider's option `profile`"
)
_NO_REGION = "there is no AWS region: set AWS_REGION, or the provider's option `region`"
_NO_PROFILE = "there is no AWS profile of that name: check AWS_PROFILE and the provider's option `profile`"
_NO_ACCESS = "the AWS credentials could not be fetched or renewed; the processor's operator must check them"
_UNREACHABLE = "the provider cannot be reached; check its region and endpoint_url, and the network"
_NONSENSE = "the provider sent bytes that are not an answer of its API; check endpoint_url"
_BAD_ENDPOINT = (
    "endpoint_url and region must be valid, and a key in AWS_BEARER_TOKEN_BEDROCK goes to an https:// URL only"
)
_load_data = functools.cache(create_loader)
"""Reads AWS's descriptions of its services once in a process, not once for each key: that takes 60 ms."""
_REFUSED = "the request cannot be put into the provider's terms; check names of tools, sampling fields and images"


class BedrockClient:
    """boto3's clients for one region: one for answers, and one for the list of models."""

    def __init__(
        self, runtime: "BedrockRuntimeClient", control: "ControlClient", sessions: tuple[AbortableSession, ...]
    ) -> None:
        self._runtime = runtime
        self._control = control
        self._closing = (runtime.close, control.close, *(session.close for session in sessions))

    @classmethod
    def open(
        cls, region: str | None, profile: str | None, endpoint_url: str | None, connections: int, key: str | None
    ) -> "BedrockClient":
        """Create the clients; nothing is sent to Bedrock before the first request.

        Args:
            region: the AWS region; None = the environment's or the profile's.
            profile: a profile of ~/.aws/credentials; None = the environment's.
            endpoint_url: Bedrock's URL; None = the environment's, the profile's, or AWS's own.
            connections: maximum number of open connections.
            key: a Bedrock API key; None = AWS's credentials.

        Raises:
            ProviderAuth: there are no credentials.
            BadRequest: region or profile are missing or wrong.
        """
        with _translate_errors():
            # boto3 itself reads only AWS_DEFAULT_REGION; AWS_REGION is the variable of AWS's other SDKs and hosts.
            region = region or os.environ.get("AWS_REGION") or None
            core = Session()
            session = boto3.session.Session(region_name=region, profile_name=profile, botocore_session=core)
            core.register_component("data_loader", _load_data(core.get_config_variable("data_path")))
            config = Config(retries={"total_max_attempts": 1}, connect_timeout=CONNECT_TIMEOUT_SECONDS)
            if key is not None:
                core.register_component("token_provider", ScopedEnvTokenProvider(core, {KEY_VARIABLE: key}))
                config = config.merge(Config(signature_version="bearer"))
            try:
                runtime = session.client("bedrock-runtime", endpoint_url=endpoint_url, config=config)
                control = session.client("bedrock", endpoint_url=endpoint_url, config=config)
            except ValueError:
                raise BadRequest(_BAD_ENDPOINT) from None
            if key is None and session.get_credentials() is None:
                raise ProviderAuth(_NO_CREDENTIALS)
        return cls(runtime, control, tuple(_own_connections(client, connections) for client in (runtime, control)))

    def chunks(self, request: "ConverseStreamRequestTypeDef") -> Generator[LlmChunk, None, None]:
        """Send a request, and read the answer's events to their end.

        Raises:
            TgError: one of `tg_schema.errors`.
        """
        answer = StreamDecoder()
        with _translate_errors():
            response = self._runtime.converse_stream(**request)
        with _translate_errors(BROKEN), closing(response["stream"]) as events:
            for event in events:
                chunk = answer.chunk(event)
                if chunk is None:
                    time.sleep(0)  # Release the GIL: a server may send nothing but events without content.
                else:
                    yield _check_chunk(chunk)

    def models(self) -> Generator[ModelInfo, None, None]:
        """The text models with streaming. Raises as `chunks`."""
        with _translate_errors():
            listed = self._control.list_foundation_models(byOutputModality="TEXT")
        for model in listed["modelSummaries"]:
            if model.get("responseStreamingSupported", True):
                yield ModelInfo(model["modelId"], model.get("providerName", ""))

    async def aclose(self) -> None:
        """Close the connections in a thread, because that blocks."""
        for close in self._closing:
            await asyncio.to_thread(close)


def _own_connections(client: "BaseClient", connections: int) -> AbortableSession:
    """Let a client send its requests over abortable connections."""
    proxies = get_environ_proxies(client.meta.endpoint_url)
    verify = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or True
    session = AbortableSession(proxies, CONNECT_TIMEOUT_SECONDS, connections, verify=verify)

    def send(request: "AWSPreparedRequest", **_: Any) -> "AWSResponse":
        # After the signature, which need not cover them.
        for name, value in trace.headers().items():
            request.headers[name] = value
        request.stream_output = True  # Otherwise boto3's HTTP layer reads the body at once, without a limit.
        return bound_body(session.send(request))

    # If a handler of this event returns a response, boto3 does not send by itself; the stubs lack such handlers.
    handler: Any = send
    client.meta.events.register(f"before-send.{client.meta.service_model.service_id.hyphenize()}", handler)
    return session


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[TgError], str], ...] = (
    ((NoCredentialsError, NoAuthTokenError), ProviderAuth, _NO_CREDENTIALS),
    ((CredentialRetrievalError, PartialCredentialsError, TokenRetrievalError), ProviderAuth, _NO_ACCESS),
    ((NoRegionError,), BadRequest, _NO_REGION),
    ((InvalidEndpointConfigurationError, InvalidRegionError), BadRequest, _BAD_ENDPOINT),
    ((ProfileNotFound,), ProviderAuth, _NO_PROFILE),
    ((ParamValidationError,), BadRequest, _REFUSED),
    ((ConnectTimeoutError,), Timeout, SLOW),
    (
        (ParserError, ResponseParserError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
        ProtocolError,
        _NONSENSE,
    ),
)
_FOREIGN: tuple[type[Exception], ...] = (
    BotoCoreError,
    HTTPError,
    OSError,
    *(kind for kinds, _, _ in _KINDS for kind in kinds),
)
"""The exceptions of boto3, and of the libraries below it that pass through it."""


@contextmanager
def _translate_errors(broken: str | None = None) -> Iterator[None]:
    """Translate the SDK's exceptions to ours. `broken` is the message for an answer that had already begun."""
    try:
        yield
    except ClientError as error:
        raise _make_error(error) from None
    except _FOREIGN as error:
        if isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), EndlessError):
            raise ProtocolError(_NONSENSE) from None
        for kinds, kind, sentence in _KINDS:
            if isinstance(error, kinds):
                raise kind(sentence) from None
        raise (IncompleteStream(broken) if broken else unreachable(_UNREACHABLE)) from None


_chunks = msgspec.json.Decoder(LlmChunk)


def _check_chunk(chunk: LlmChunk) -> LlmChunk:
    """Validate types and text, which boto3 does not. Raises ValueError if the chunk cannot be sent on the bus."""
    # The round trip finds wrong types and lone surrogates here, where they fail one stream with a clear error.
    encoded = msgspec.json.encode(check_numbers(chunk))
    if len(encoded) > MAX_EVENT_BYTES:
        raise EndlessError
    return _chunks.decode(encoded)


def _make_error(error: ClientError) -> TgError:
    """The error for an error response, or for an error event, whose code begins with a lower-case letter."""
    fault = error.response.get("Error", {})
    code, text = fault.get("Code", ""), fault.get("Message", "")
    if isinstance(error, EventStreamError):
        return event_error(code[:1].upper() + code[1:], text=text)
    about = error.response.get("ResponseMetadata")
    if about is None:
        return status_error(502, code)
    headers = about["HTTPHeaders"]
    request_id = find_request_id(headers)
    return status_error(about["HTTPStatusCode"], code, retry_after(headers), text=text, request_id=request_id)
