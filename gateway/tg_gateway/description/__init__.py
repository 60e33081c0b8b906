"""What dialects say of their operations, for the OpenAPI document that `tg_gateway.openapi` makes of it."""

from tg_gateway.description.description import ASKING, EVENTS, Description

__all__ = ["ASKING", "EVENTS", "Description"]
