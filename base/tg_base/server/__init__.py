"""Bus -> service -> bus: who answers. A `Processor` runs one `Service`, a process ends by signal."""

from tg_base.server.process import serve_process
from tg_base.server.processor import Processor
from tg_base.server.service import Service

__all__ = [
    "Processor",
    "Service",
    "serve_process",
]
