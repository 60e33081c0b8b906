"""The table of mounts -> `/openapi.json` and `/docs`: all doors in one OpenAPI document, and a page to try them."""

from tg_gateway.openapi.document import make_document
from tg_gateway.openapi.documentation import Documentation
from tg_gateway.openapi.row import list_rows

__all__ = ["Documentation", "list_rows", "make_document"]
