"""Serves `$JS.API.>`: the router, the handlers, and what accounts without JetStream answer."""
