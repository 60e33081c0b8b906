"""Amazon Bedrock's Converse API."""

from tests.fakes.bedrock_server import BedrockServer
from tests.provider_matrix.case import TELLS, Case

CASES = (
    Case(
        "bedrock",
        BedrockServer.running,
        options=lambda url: {"endpoint_url": url, "region": "eu-west-1"},
        environment=lambda url: {"AWS_ACCESS_KEY_ID": BedrockServer.key, "AWS_SECRET_ACCESS_KEY": "s3cret"},
        tells=TELLS - {"image_urls", "reasoning_count"},
        thinking={"model_fields": {"thinking": {"type": "enabled", "budget_tokens": 2048}}},
    ),
)
