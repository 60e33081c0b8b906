"""boto3 -> connections that register their socket with the thread that uses them, so that it can be aborted."""

import socket
from collections.abc import Mapping
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.httpsession import URLLib3Session
from typing_extensions import override
from urllib3.connectionpool import HTTPConnectionPool

from tg_bedrock.abortable_socket import socket_of_this_thread
from tg_bedrock.bounded_response import BoundedResponse


class _HttpConnection(AWSHTTPConnection):
    response_class = BoundedResponse  # type: ignore[assignment]  # the stubs know botocore's own only


class _HttpsConnection(AWSHTTPSConnection):
    response_class = BoundedResponse  # type: ignore[assignment]  # the stubs know botocore's own only


class _Holding(HTTPConnectionPool):
    @override
    def _validate_conn(self, conn: Any) -> None:
        super()._validate_conn(conn)
        _hold(conn)


class _HttpPool(_Holding, AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(_Holding, AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def _hold(connection: Any) -> None:
    """Register the connection's socket with the current thread; called before each request, on new and reused ones."""
    # Connected here: plain HTTP otherwise connects while sending, when its socket could not be registered any more.
    if connection.sock is None:
        connection.connect()
    abortable = socket_of_this_thread()
    if abortable is not None:
        abortable.hold(connection.sock)


class AbortableSession(URLLib3Session):
    """boto3's own HTTP session with abortable connections."""

    _pool_classes_by_scheme: dict[str, type[HTTPConnectionPool]]

    def __init__(self, proxies: Mapping[str, str], connect_timeout: float, connections: int, *, verify: Any) -> None:
        # (connect, read): reading has no timeout here, because `guard_stream` times the content.
        timeout: Any = (connect_timeout, None)
        # Without TCP_NODELAY a request waits 40 ms for the acknowledgement of the one before it.
        options: Any = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        super().__init__(
            verify=verify,
            proxies=proxies,
            timeout=timeout,
            max_pool_connections=connections,
            socket_options=options,
        )
        self._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)
