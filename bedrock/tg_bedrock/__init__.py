"""Models on Amazon Bedrock: whatever the Converse API serves."""
