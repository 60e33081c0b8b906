"""The gateway: HTTP and WebSocket onto the bus, through the doors. `tg_gateway.app` is the gateway as one object."""
