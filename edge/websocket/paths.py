"""Paths that a WebSocket's request may end with, and what they ask for."""

LEAF_PATH = "/leafnode"
MQTT_PATH = "/mqtt"


def cleaned(path: str) -> str:
    """A path without empty parts, `.` and `..`, as Go's router wants it (`http.ServeMux`)."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    end = "/" if parts and path.endswith("/") else ""
    return "/" + "/".join(parts) + end
