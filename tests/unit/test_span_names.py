"""The names of spans' attributes are those of the conventions that the lock pins."""

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, http_attributes, server_attributes
from opentelemetry.semconv._incubating.attributes import service_attributes as service
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas

from tg_base.telemetry import span_names


def test_names_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (gen_ai_attributes, http_attributes, server_attributes, service, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for name, value in vars(span_names).items() if name.isupper() and isinstance(value, str)}
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {name for name in ours - known if not name.startswith("tokengrid.")} - operations == {span_names.SCHEMA_URL}
    assert {*span_names.OPERATIONS.values(), span_names.CHAT, span_names.EXECUTE_TOOL} <= operations
    assert [*Schemas][-1].value == span_names.SCHEMA_URL
