"""The door: HTTP and WebSocket onto the bus. `tg_gateway.app` is the gateway as one object."""
