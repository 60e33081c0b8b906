"""Models on Amazon Bedrock: whatever the Converse API serves. The SDK is imported when a provider is opened."""

from tg_bedrock.provider import Bedrock

__all__ = [
    "Bedrock",
]
