"""The door: HTTP and WebSocket onto the bus."""
