"""The page at `/`: links to the endpoints."""

from headwater.edge.facts.version import NATS_LEVEL, VERSION

_PAGES = (
    ("General", "varz"),
    ("JetStream", "jsz"),
    ("Connections", "connz"),
    ("Accounts", "accountz"),
    ("Account Stats", "accstatz"),
    ("Subscriptions", "subsz"),
    ("Routes", "routez"),
    ("LeafNodes", "leafz"),
    ("Edge", "edgez"),
    ("Gateways", "gatewayz"),
    ("Health Probe", "healthz"),
    ("Metrics", "metrics"),
    ("Stacks", "stacksz"),
)


def index_page() -> str:
    """The page as HTML; links are relative, so that it works below any base path."""
    links = "\n".join(f'<li><a href="./{path}">{title}</a></li>' for title, path in _PAGES)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Headwater</title>'
        "<style>body{font-family:system-ui,sans-serif;margin:2rem}li{margin:.4rem 0}</style>"
        f"</head><body>\n<h1>Headwater {VERSION}</h1>\n<p>NATS level {NATS_LEVEL}</p>\n"
        f"<ul>\n{links}\n</ul>\n</body></html>\n"
    )
