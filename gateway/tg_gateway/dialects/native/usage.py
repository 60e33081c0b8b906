"""GET /api/v1/usage -> service `usage`: sums of usage; a key without an admin's rights sees only its own."""

import msgspec

from tg_gateway.dialects import Ask, Call, CompletionWriter
from tg_gateway.dialects.native.services import service_of
from tg_schema.errors import BadRequest
from tg_schema.service_spec import USAGE
from tg_schema.usage_report import UsageRequest, UsageResponse


class UsageQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parameters after `?`.

    Attributes:
        by: fields of `UsageRequest.by`, with commas between them.
        since: as `UsageRequest.since`.
        until: as `UsageRequest.until`.
        key: as `UsageRequest.key`; without an admin's rights only one's own.
    """

    by: str = ""
    since: str = "7d"
    until: str | None = None
    key: str | None = None


def ask_usage(call: Call) -> Ask:
    """The question that the query asks.

    Raises:
        BadRequest: it has an unknown parameter.
        NotFound: no flow has the service.
    """
    route = call.route = call.catalogue.find_anywhere(USAGE.name)
    known = UsageQuery.__struct_fields__
    for name in call.query:
        if name not in known:
            raise BadRequest(f"there is no parameter {name[:64]!r}; there are: {', '.join(known)}")
    asked = UsageQuery(**{name: call.query[name] for name in known if name in call.query})
    by = tuple(name.strip() for name in asked.by.split(",") if name.strip())
    # A key that asks for another key's usage is refused like any request that it may not make.
    request = UsageRequest(by, asked.since, asked.until, asked.key or call.sees)
    return Ask(route, request, CompletionWriter(service_of(USAGE).whole, record=UsageResponse), streaming=False)
