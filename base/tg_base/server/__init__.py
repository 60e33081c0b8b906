"""Bus -> service -> bus: a `Processor` runs one `Service`; `serve_process` ends a process by signal."""

from tg_base.server.process import serve_process
from tg_base.server.processor import Processor
from tg_base.server.service import Service

__all__ = [
    "Processor",
    "Service",
    "serve_process",
]
