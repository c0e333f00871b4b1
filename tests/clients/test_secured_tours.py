"""Official clients over TLS and WebSocket, with credentials, through a kill and a new start."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.servers import Server, free_port
from headwater.security.creds import render
from tests.certificates import certificate
from tests.operator_realm import SERVERS, Realm, recipe

HERE = Path(__file__).parent
TOUR_S = 60.0
DENO = "javascript/node_modules/.bin/deno"
DENO_RUN = [DENO, "run", "--quiet", "--no-lock", "--allow-all", "javascript/secured.mjs"]
TOURS = {
    "go": (["go/tour"], "go/tour", "tls"),
    "go, WebSocket": (["go/tour"], "go/tour", "wss"),
    "node": (["node", "javascript/secured.mjs"], "javascript/node_modules", "tls"),
    "deno": (DENO_RUN, DENO, "tls"),
    "deno, WebSocket": (DENO_RUN, DENO, "wss"),
    "c": (["c/tour"], "c/tour", "tls"),
}
"""Each client's command, what is there once it is installed, and how it connects."""


def prints(name: str, words: list[str], scheme: str, folder: Path) -> list[str]:
    """What a tour prints with one server, which is killed and started again when it asks."""
    tls = certificate(folder, "localhost")
    files = f'cert_file: "{tls.cert_file}", key_file: "{tls.key_file}"'
    other = free_port()
    realm = Realm()
    realm.bodies["A"].limits.disk_storage = realm.bodies["A"].limits.mem_storage = -1
    config = realm.config(
        f'jetstream {{ store_dir: "{{dir}}" }}\ntls {{ {files} }}\n'
        f"websocket {{ listen: 127.0.0.1:{other}, tls {{ {files} }} }}\n"
    )
    permissions = {"pub": {"deny": ["denied.>"]}}
    users = {"creds": realm.user(**permissions), "wrong": Realm().user()}
    for kind, user in users.items():
        (folder / kind).write_text(render(user.token, user.pair.seed))
    with Server(recipe(name, config), folder / "store") as server:
        url = f"{scheme}://localhost:{server.port if scheme == 'tls' else other}"
        ca = str(folder / "cert.pem")
        arguments = [url, ca, str(folder / "creds"), str(folder / "wrong")]
        with subprocess.Popen(
            [*words, *arguments], cwd=HERE, text=True, env={**os.environ, "DENO_CERT": ca},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as tour:  # fmt: skip
            assert tour.stdin is not None and tour.stdout is not None
            lines = []
            try:
                for line in tour.stdout:
                    if line == "RESTART\n":
                        server.kill()
                        server.start()
                        tour.stdin.write("\n")
                        tour.stdin.flush()
                    lines.append(line)
                assert tour.wait(TOUR_S) == 0, lines
            finally:
                tour.kill()
        return lines


@pytest.mark.timeout(2 * TOUR_S)
@pytest.mark.parametrize("client", TOURS)
def test_secured_tour(client: str, tmp_path: Path) -> None:
    (program, *words), needed, scheme = TOURS[client]
    if not (HERE / needed).exists() or not ("/" in program or shutil.which(program)):
        pytest.skip(f"the client of {client} is not installed; run `make clients`")
    found = []
    for name in SERVERS:
        (tmp_path / name).mkdir()
        found.append(prints(name, [program, *words], scheme, tmp_path / name))
    assert found[0] == found[1]
    assert "RESTART\n" in found[0]
    assert not any("ERR" in line for line in found[0]), found[0]
