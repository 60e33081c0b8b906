"""Bedrock -> boto3 -> socket: the one file that asks the SDK; everything in it blocks, and belongs into a thread.

boto3 signs, sends and takes the frames apart (checksums included). Its retries are off and it has no clock for reading:
the base has both.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.eventstream import ParserError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EventStreamError,
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
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from tg_base.llm_chunk import LlmChunk
from tg_base.provider_errors import event_error, retry_after, status_error
from tg_bedrock.converse_wire import Answer
from tg_bedrock.cuttable import CuttableSession
from tg_schema import ModelInfo
from tg_schema.errors import (
    BadRequest,
    IncompleteStream,
    ProtocolError,
    ProviderAuth,
    TgError,
    Timeout,
    Unavailable,
)

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient
    from types_boto3_bedrock.client import BedrockClient as ControlClient
    from types_boto3_bedrock_runtime.client import BedrockRuntimeClient
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef

CONNECT_TIMEOUT = 10.0
"""Seconds to a connection; everything after it is timed by the stream's guard."""

_NO_CREDENTIALS = (
    "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or name a profile of ~/.aws/credentials in AWS_PROFILE or in the provider's option `profile`"
)
_NO_REGION = "there is no AWS region: set AWS_REGION, or the provider's option `region`"
_NO_PROFILE = "there is no AWS profile of that name: check AWS_PROFILE and the provider's option `profile`"
_NO_ACCESS = "the AWS credentials could not be fetched or renewed; the processor's operator must check them"
_UNREACHABLE = "the provider cannot be reached; check its region and endpoint_url, and the network"
_BROKEN = "the connection to the provider broke before the answer was complete; ask again"
_SLOW = f"the provider did not take a connection within {CONNECT_TIMEOUT:g} s"
_NONSENSE = "the provider sent bytes that are not an answer of its API; check endpoint_url"
_BAD_ENDPOINT = (
    "endpoint_url and region must be valid, and a key in AWS_BEARER_TOKEN_BEDROCK goes to an https:// URL only"
)
_REFUSED = "the request cannot be put into the provider's terms; check names of tools, sampling fields and images"


class BedrockClient:
    """boto3's clients for one region: the one that answers, and the one that lists models."""

    def __init__(self, runtime: "BedrockRuntimeClient", control: "ControlClient") -> None:
        self._runtime = runtime
        self._control = control

    @classmethod
    def open(
        cls, region: str | None, profile: str | None, endpoint_url: str | None, connections: int
    ) -> "BedrockClient":
        """Make the clients ready; nothing is sent to Bedrock before the first request.

        Raises:
            ProviderAuth: there are no credentials.
            BadRequest: region or profile are missing or wrong.
        """
        with _translated():
            session = boto3.session.Session(region_name=region, profile_name=profile)
            config = Config(retries={"total_max_attempts": 1}, connect_timeout=CONNECT_TIMEOUT)
            try:
                runtime = session.client("bedrock-runtime", endpoint_url=endpoint_url, config=config)
                control = session.client("bedrock", endpoint_url=endpoint_url, config=config)
            except ValueError:
                raise BadRequest(_BAD_ENDPOINT) from None
            # A key of Bedrock's own stands in its variable, and not in the chain of AWS credentials.
            if not os.environ.get("AWS_BEARER_TOKEN_BEDROCK") and session.get_credentials() is None:
                raise ProviderAuth(_NO_CREDENTIALS)
        for client in (runtime, control):
            _own_connections(client, connections)
        return cls(runtime, control)

    def chunks(self, request: "ConverseStreamRequestTypeDef") -> Generator[LlmChunk, None, None]:
        """Ask, and read the answer's events to their end.

        Raises:
            TgError: from the closed set, in our own words.
        """
        answer = Answer()
        with _translated():
            response = self._runtime.converse_stream(**request)
        with _translated(_BROKEN), closing(response["stream"]) as events:
            for event in events:
                chunk = answer.chunk(event)
                if chunk is not None:
                    yield chunk

    def models(self) -> Generator[ModelInfo, None, None]:
        """The text models that answer in streams. Raises as `chunks`."""
        with _translated():
            listed = self._control.list_foundation_models(byOutputModality="TEXT")
        for model in listed["modelSummaries"]:
            if model.get("responseStreamingSupported", True):
                yield ModelInfo(model["modelId"], model.get("providerName", ""))

    def close(self) -> None:
        """Close the connections."""
        self._runtime.close()
        self._control.close()


def _own_connections(client: "BaseClient", connections: int) -> None:
    """Let a client send over connections that can be cut."""
    proxies = get_environ_proxies(client.meta.endpoint_url)
    verify = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or True
    session = CuttableSession(proxies, CONNECT_TIMEOUT, connections, verify=verify)

    def send(request: "AWSPreparedRequest", **_: Any) -> "AWSResponse":
        response: AWSResponse = session.send(request)
        return response

    # What a handler of this event returns, boto3 takes for the answer; the stubs know no handler that returns.
    handler: Any = send
    client.meta.events.register(f"before-send.{client.meta.service_model.service_id.hyphenize()}", handler)


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[TgError], str], ...] = (
    ((NoCredentialsError, NoAuthTokenError), ProviderAuth, _NO_CREDENTIALS),
    ((CredentialRetrievalError, PartialCredentialsError, TokenRetrievalError), ProviderAuth, _NO_ACCESS),
    ((NoRegionError,), BadRequest, _NO_REGION),
    ((InvalidEndpointConfigurationError, InvalidRegionError), BadRequest, _BAD_ENDPOINT),
    ((ProfileNotFound,), ProviderAuth, _NO_PROFILE),
    ((ParamValidationError,), BadRequest, _REFUSED),
    ((ConnectTimeoutError,), Timeout, _SLOW),
    ((ParserError, ResponseParserError, ValueError, KeyError, RecursionError), ProtocolError, _NONSENSE),
)
_FOREIGN: tuple[type[Exception], ...] = (
    BotoCoreError,
    HTTPError,
    OSError,
    *(kind for kinds, _, _ in _KINDS for kind in kinds),
)
"""What boto3 raises, and what comes through it from below."""


@contextmanager
def _translated(broken: str | None = None) -> Iterator[None]:
    """Errors of the SDK become ours; with `broken`, an answer had begun."""
    try:
        yield
    except ClientError as error:
        raise _said(error) from None
    except _FOREIGN as error:
        for kinds, kind, sentence in _KINDS:
            if isinstance(error, kinds):
                raise kind(sentence) from None
        raise (IncompleteStream(broken) if broken else Unavailable(_UNREACHABLE)) from None


def _said(error: ClientError) -> TgError:
    """What Bedrock answered instead of an answer, or reports in a stream, where the words begin with a small letter."""
    code = error.response.get("Error", {}).get("Code", "")
    if isinstance(error, EventStreamError):
        return event_error(code[:1].upper() + code[1:])
    about = error.response.get("ResponseMetadata")
    if about is None:
        return status_error(502, code)
    return status_error(about["HTTPStatusCode"], code, retry_after(about["HTTPHeaders"]))
