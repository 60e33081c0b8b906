"""The table of mounts: which protocol is where. A new protocol is a row here, and a file or folder in `dialects`."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.native import NATIVE_MOUNTS

MOUNTS: Final[tuple[Mount, ...]] = (*NATIVE_MOUNTS,)
"""The first row's dialect refuses what is near to nobody's path."""
