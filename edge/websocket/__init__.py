"""WebSocket connections: the listener, the request, the frames."""
