"""Call -> dialect -> what it asks: in this process, or in another where a large body would hold everybody up."""

from tg_gateway.parsing.call_parser import CallParser

__all__ = ["CallParser"]
