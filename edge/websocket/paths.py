"""Paths that a WebSocket's request may end with, and what they ask for."""

LEAF_PATH = "/leafnode"
MQTT_PATH = "/mqtt"
