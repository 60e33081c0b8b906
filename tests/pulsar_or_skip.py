"""A broker for a test, or the sentence that says why there is none."""

from collections.abc import Mapping

from tests.missing import skip_or_fail
from tests.pulsar_distribution import PulsarMissing
from tests.pulsar_server import QUICK_START, PulsarServer


def pulsar_or_skip(settings: Mapping[str, str] | None = None, admin_token: str | None = None) -> PulsarServer:
    """A broker that is not started yet.

    Where Java or Maven is missing the test skips; with TOKENGRID_REQUIRE_ALL=1 it fails instead.
    """
    try:
        return PulsarServer(settings=settings, admin_token=admin_token, java_options=QUICK_START)
    except PulsarMissing as missing:
        skip_or_fail(str(missing))
