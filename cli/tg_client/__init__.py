"""The Python SDK of the gateway."""
