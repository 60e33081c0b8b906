"""Where our own protocol is."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.native.dialect import NATIVE
from tg_gateway.dialects.native.flow_service import MODELS
from tg_gateway.dialects.native.services import SERVICES

NATIVE_MOUNTS: Final = (
    *(Mount("POST", f"/api/v1/{service}", NATIVE, service) for service in SERVICES),
    Mount("POST", "/api/v1/flow/{flow}/service/{service}", NATIVE, "service"),
    Mount("GET", "/api/v1/models", NATIVE, MODELS),
    Mount("GET", "/api/v1/socket", NATIVE, "socket", socket=True, keyless=True),
)
