"""Models on Amazon Bedrock by its Converse API. The SDK is imported when a provider is opened."""

from tg_bedrock.provider import Bedrock

__all__ = [
    "Bedrock",
]
