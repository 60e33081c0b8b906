"""One file a provider; nothing else knows what differs."""
