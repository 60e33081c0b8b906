"""boto3 -> connections whose sockets are known to the line of the thread that uses them, so that it can be cut."""

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
from urllib3.connection import HTTPConnection

from tg_bedrock.line import Line, line_of_this_thread


class _Cuttable(HTTPConnection):
    """Tells its socket to the line of the thread that uses it, and the line before that it is no longer its own."""

    _of: Line | None = None

    @override
    def connect(self) -> None:
        super().connect()
        self._tell()

    @override
    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
        self._tell()
        super().request(method, url, body, headers, **more)

    def _tell(self) -> None:
        line = line_of_this_thread()
        if self._of is not None and self._of is not line:
            self._of.let_go()
        self._of = line
        if line is not None and self.sock is not None:
            line.hold(self.sock)


class _Http(_Cuttable, AWSHTTPConnection):
    pass


class _Https(_Cuttable, AWSHTTPSConnection):
    pass


class _HttpPool(AWSHTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _Https


class CuttableSession(URLLib3Session):
    """boto3's own HTTP, its connections apart."""

    def __init__(self, proxies: Mapping[str, str], connect_timeout: float, connections: int, *, verify: Any) -> None:
        # A pair is (connect, read); nothing is said of reading, because the stream's guard has those clocks.
        timeout: Any = (connect_timeout, None)
        super().__init__(verify=verify, proxies=proxies, timeout=timeout, max_pool_connections=connections)
        self._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)
