"""`python -m bench.fleet`: gateways flashed by Headwater, and by Ansible, with the same files.

Every gateway is an OpenSSH server on loopback with folders of its own. Both sides bring the same
bundle and have the same program on the gateway install it; Ansible's playbook says what a person
would write for that. The two take turns on fresh gateways; what is compared is wall time and the
CPU time of the machine that flashes, per host. Needs root, openssh-server, and Ansible from PyPI
in `build/ansible` (`make bench-fleet` puts it there).
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.deploy.fleet.pyz import agent_file
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.lab import PYTHON, Gateway, Lab, make_bundle

ANSIBLE = Path("build/ansible/bin/ansible-playbook").absolute()
CONFIG = 'listen: "127.0.0.1:-1"\nserver_name: {{ name }}\njetstream { store_dir: "{{ store }}" }\n'

PLAYBOOK = """
- hosts: all
  gather_facts: true
  tasks:
    - ansible.builtin.file: { path: "{{ prefix }}/incoming", state: directory, mode: "0755" }
    - ansible.builtin.file: { path: "{{ prefix }}/python", src: PYTHON, state: link }
    - ansible.builtin.copy: { src: AGENT, dest: "{{ prefix }}/agent.pyz", mode: "0644" }
    - ansible.builtin.copy: { src: BUNDLE, dest: "{{ prefix }}/incoming/x.part", mode: "0644" }
    - ansible.builtin.template: { src: SPEC, dest: "{{ prefix }}/spec.json", mode: "0600" }
    - ansible.builtin.shell: "{{ prefix }}/python {{ prefix }}/agent.pyz apply
        --prefix {{ prefix }} < {{ prefix }}/spec.json"
"""


class Cost:
    """Wall and CPU seconds of a command that this process runs."""

    def __init__(self, wall: float, cpu: float) -> None:
        self.wall = wall
        self.cpu = cpu


def measured(words: list[str], environment: dict[str, str]) -> Cost:
    """Run a command to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{_problems(done.stdout)}\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu)


def _problems(output: str) -> str:
    """Gateways with an error, of the object that `--json` prints; else the output's end."""
    try:
        hosts = json.loads(output.splitlines()[-1])["hosts"]
    except (ValueError, LookupError, TypeError):
        return output[-2000:]
    return "\n".join(f"{host['name']}: {host['error']}" for host in hosts if host["error"])


@contextlib.contextmanager
def gateways(folder: Path, bundle: Path, key: KeyPair, count: int) -> Iterator[Lab]:
    """Fresh gateways."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        os.chmod(place, 0o755)
        lab = Lab(Path(place), bundle, key)
        try:
            lab.add(*(f"gw-{number}" for number in range(count)))
            yield lab
        finally:
            lab.close()


def with_headwater(lab: Lab, runs: int) -> list[Cost]:
    """Flash; and again, with nothing to change, so many times."""
    lab.write("nats://127.0.0.1:1", template=CONFIG, deadline=300)
    words = [sys.executable, "-m", "headwater.deploy.main", "fleet", "flash", "-f",
             str(lab.inventory), "--json"]  # fmt: skip
    return [measured(words, {}) for _ in range(runs)]


def with_ansible(lab: Lab) -> Cost:
    """The same by a playbook."""
    folder = lab.folder
    (folder / "agent.pyz").write_bytes(agent_file())
    spec = {
        "name": "{{ inventory_hostname }}", "fleet": "plant", "data": "{{ data }}",
        "service": "supervisor", "unit": "headwater", "run_as": "nobody", "deadline_s": 300,
        "hubs": [], "bundle": "x.bundle", "keys": [lab.bundle_key.public_key], "ca": "",
        "config": CONFIG.replace("{{ name }}", "{{ inventory_hostname }}")
        .replace("{{ store }}", "{{ data }}/store"),
    }  # fmt: skip
    (folder / "spec.json").write_text(json.dumps(spec) + "\n")
    text = PLAYBOOK.replace("AGENT", str(folder / "agent.pyz"))
    text = text.replace("BUNDLE", str(lab.bundle)).replace("SPEC", str(folder / "spec.json"))
    (folder / "play.yml").write_text(text.replace("PYTHON", PYTHON))
    hosts = "".join(map(_ansible_host, lab.gateways))
    (folder / "hosts").write_text(hosts)
    known = "".join(f"[127.0.0.1]:{each.port} {each.host_key}\n" for each in lab.gateways)
    (folder / "known_hosts").write_text(known)
    environment = {
        "ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": f"-o ControlMaster=auto -o ControlPersist=60s -i {folder / 'id'} "
        f"-o UserKnownHostsFile={folder / 'known_hosts'} -o IdentitiesOnly=yes",
        "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    words = [str(ANSIBLE), "-i", str(folder / "hosts"), "-f", "30", str(folder / "play.yml")]
    return measured(words, environment)


def _ansible_host(gateway: Gateway) -> str:
    return (
        f"{gateway.name} ansible_host=127.0.0.1 ansible_port={gateway.port} ansible_user=root "
        f"ansible_python_interpreter={PYTHON} prefix={gateway.prefix} data={gateway.data}\n"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    count = parser.parse_args().hosts
    with tempfile.TemporaryDirectory(prefix="headwater-bench-fleet-") as place:
        os.chmod(place, 0o755)
        folder, key = Path(place), KeyPair.create("O")
        bundle = make_bundle(folder, key)
        with gateways(folder, bundle, key, count) as lab:
            first, again = with_headwater(lab, 2)
        with gateways(folder, bundle, key, count) as lab:
            other = with_ansible(lab)
        size = bundle.stat().st_size / 1e6
    print(f"{count} gateways, a bundle of {size:.1f} MB each; per host:")
    print("                        wall s    cpu s here")
    for name, cost in (("headwater, first", first), ("ansible, first", other),
                       ("headwater, unchanged", again)):  # fmt: skip
        print(f"{name:<22}{cost.wall / count:>8.2f}{cost.cpu / count:>14.3f}")
    wall, cpu = other.wall / first.wall, other.cpu / first.cpu
    print(f"ansible / headwater: wall {wall:.1f}, cpu {cpu:.1f}")


if __name__ == "__main__":
    main()
