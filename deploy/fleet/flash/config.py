"""The configuration of one gateway, out of the inventory's template or of none."""

from pathlib import Path
from typing import Any

from headwater.deploy.fleet.flash.inventory import Host, Inventory, InventoryError

WITHOUT_TEMPLATE = """\
# Written by headwater fleet flash for {{ name }}.
listen: "127.0.0.1:4222"
server_name: "{{ name }}"
jetstream { store_dir: "{{ store }}", domain: "{{ name }}" }
leafnodes {
  remotes: [ {
    urls: [ {% for url in hub %}"{{ url }}"{% if not loop.last %}, {% endif %}{% endfor %} ]
{% if enrolled %}    credentials: "{{ creds }}"
{% endif %}{% if ca %}    tls { ca_file: "{{ ca }}" }
{% endif %}  } ]
}
"""


def render(inventory: Inventory, host: Host) -> str:
    """The text of a gateway's configuration. Raises InventoryError.

    A template may use `name`, `address`, `fleet`, `groups`, `hub` (a list), `prefix`, `data`,
    `store`, `creds`, `ca`, and each of the host's variables, by itself or as `vars.NAME`.
    """
    import jinja2

    path: Path | None = None
    text = WITHOUT_TEMPLATE
    if inventory.template.config:
        path = inventory.path(inventory.template.config)
        try:
            text = path.read_text()
        except OSError as error:
            raise InventoryError(f"{path}: {error.strerror}") from error
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    try:
        return environment.from_string(text).render(context(inventory, host))
    except jinja2.TemplateSyntaxError as error:
        raise InventoryError(f"{path}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise InventoryError(f"{path} for {host.name}: {error.message}") from error


def context(inventory: Inventory, host: Host) -> dict[str, Any]:
    """What a template may use."""
    prefix, data = host.prefix.rstrip("/"), host.data.rstrip("/")
    return {
        **host.vars, "vars": host.vars, "name": host.name, "address": host.address,
        "fleet": inventory.fleet.name, "groups": host.groups, "hub": inventory.fleet.hub,
        "prefix": prefix, "data": data, "store": f"{data}/store",
        "creds": f"{data}/keys/gateway.creds", "enrolled": bool(inventory.enrol.tokens),
        "ca": f"{prefix}/current/ca.pem" if inventory.fleet.ca else "",
    }  # fmt: skip
