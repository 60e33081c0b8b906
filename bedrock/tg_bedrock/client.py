"""Bedrock -> boto3 -> our pool: boto3 addresses and signs each request, and only this file calls it.

A signature covers the body, so boto3 builds the whole request. Our connections send it, and our decoder reads the
answer.
"""

import asyncio
import functools
import os
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
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
from botocore.session import Session
from botocore.tokens import ScopedEnvTokenProvider

from tg_base.llm import HttpAnswer, Method, note_unsent, open_pool, unreachable
from tg_schema import TgError
from tg_schema.errors import BadRequest, ProviderAuth, Unavailable

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from types_boto3_bedrock.client import BedrockClient as ControlClient
    from types_boto3_bedrock_runtime.client import BedrockRuntimeClient
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef

MAX_SIGNERS = 4
"""Most requests that a client signs at a time. Each holds a thread while its credentials are fetched."""
KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
"""The variable in which AWS's tools look for a Bedrock API key."""

_NO_CREDENTIALS = (
    "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or name a profile of ~/.aws/credentials in AWS_PROFILE or in the provider's option `profile`"
)
_NO_REGION = "there is no AWS region: set AWS_REGION, or the provider's option `region`"
_NO_PROFILE = "there is no AWS profile of that name: check AWS_PROFILE and the provider's option `profile`"
_NO_ACCESS = "the AWS credentials could not be fetched or renewed; the processor's operator must check them"
_CLOSED = "the model was closed; ask again"
_UNREACHABLE = "the provider cannot be reached; check its region and endpoint_url, and the network"
_BAD_ENDPOINT = (
    "endpoint_url and region must be valid, and a key in AWS_BEARER_TOKEN_BEDROCK goes to an https:// URL only"
)
_load_data = functools.cache(create_loader)
"""Reads AWS's descriptions of its services, which takes 60 ms: once in a process, not once for each key."""
_REFUSED = "the provider's API cannot express the request; check names of tools, sampling fields and images"


class BedrockClient:
    """boto3's two clients for one region: one for answers, one for the list of models. They send nothing themselves."""

    def __init__(self, runtime: "BedrockRuntimeClient", control: "ControlClient") -> None:
        self._runtime = runtime
        self._control = control
        # Not the event loop's threads: stalled credentials would block everything else that needs one, such as DNS.
        self._signers = ThreadPoolExecutor(MAX_SIGNERS, "bedrock-signer")
        bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
        self._pool = open_pool(_read_certificates(bundle) if bundle else True)
        for client in (runtime, control):
            client.meta.events.register("before-send", _leave)

    @classmethod
    def open(
        cls, region: str | None, profile: str | None, endpoint_url: str | None, key: str | None
    ) -> "BedrockClient":
        """Create the clients; slow, so call it in a thread. Nothing is sent to Bedrock before the first request.

        Args:
            region: the AWS region; None = the environment's or the profile's.
            profile: a profile of ~/.aws/credentials; None = the environment's.
            endpoint_url: Bedrock's URL; None = the environment's, the profile's, or AWS's own.
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
            config = Config(retries={"total_max_attempts": 1}, signature_version=None if key is None else "bearer")
            if key is not None:
                core.register_component("token_provider", ScopedEnvTokenProvider(core, {KEY_VARIABLE: key}))
            try:
                runtime = session.client("bedrock-runtime", endpoint_url=endpoint_url, config=config)
                control = session.client("bedrock", endpoint_url=endpoint_url, config=config)
            except ValueError:
                raise BadRequest(_BAD_ENDPOINT) from None
            if key is None and session.get_credentials() is None:
                raise ProviderAuth(_NO_CREDENTIALS)
            return cls(runtime, control)

    async def post(self, make: Callable[[], "ConverseStreamRequestTypeDef"]) -> HttpAnswer:
        """See `SdkConnection`; `make` returns the arguments of `converse_stream`, and is called in a thread."""
        return await self._send("POST", lambda: self._runtime.converse_stream(**make()))

    async def models(self) -> HttpAnswer:
        """See `SdkConnection`."""
        return await self._send("GET", lambda: self._control.list_foundation_models(byOutputModality="TEXT"))

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        self._signers.shutdown(wait=False)
        await self._pool.aclose()

    async def _send(self, method: Method, call: Callable[[], object]) -> HttpAnswer:
        note_unsent()
        try:
            signing = asyncio.get_running_loop().run_in_executor(self._signers, _record, call)
        except RuntimeError:
            raise Unavailable(_CLOSED) from None
        request = await signing
        headers = [(name, _text(value)) for name, value in request.headers.items()]
        body: Any = request.body  # bytes, as it is JSON
        return await self._pool.ask(method, request.url, headers, body)


@functools.cache
def _read_certificates(file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


class _Recorded(BaseException):
    """Raised to leave boto3's call stack; carries the signed request."""

    # A BaseException, because boto3 retries after an Exception.
    def __init__(self, request: "AWSPreparedRequest") -> None:
        super().__init__()
        self.request = request


def _leave(request: "AWSPreparedRequest", **_: Any) -> NoReturn:
    raise _Recorded(request)


def _record(call: Callable[[], object]) -> "AWSPreparedRequest":
    """The request that a call of boto3 would send; blocks while credentials are fetched."""
    with _translate_errors():
        try:
            call()
        except _Recorded as recorded:
            return recorded.request
    raise TypeError("boto3 did not tell before it sent a request")


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[TgError], str], ...] = (
    ((NoCredentialsError, NoAuthTokenError), ProviderAuth, _NO_CREDENTIALS),
    (
        # A `ClientError` comes from a service that issues credentials.
        (CredentialRetrievalError, PartialCredentialsError, TokenRetrievalError, ClientError),
        ProviderAuth,
        _NO_ACCESS,
    ),
    ((NoRegionError,), BadRequest, _NO_REGION),
    ((InvalidEndpointConfigurationError, InvalidRegionError), BadRequest, _BAD_ENDPOINT),
    ((ProfileNotFound,), ProviderAuth, _NO_PROFILE),
    ((ParamValidationError, ValueError, TypeError, RecursionError), BadRequest, _REFUSED),
)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate boto3's exceptions to ours. None of them is an answer of Bedrock, which boto3 never reads."""
    try:
        yield
    except (BotoCoreError, ClientError, OSError, ValueError, TypeError, RecursionError) as error:
        for kinds, kind, sentence in _KINDS:
            if isinstance(error, kinds):
                raise kind(sentence) from None
        raise unreachable(_UNREACHABLE) from None
