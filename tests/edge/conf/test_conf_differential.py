"""Configurations that nats-server accepts and refuses are accepted and refused here.

`differential.txt` holds the configurations. A warning counts as a refusal, as it does for
`nats-server -t`. The digests of accepted ones must agree, too. What is refused, or has no effect,
because Headwater has no such feature is no difference.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.edge.conf.enforcement import NO_EFFECT, UNSUPPORTED
from headwater.edge.conf.load import load_file
from headwater.edge.conf.problems import ConfigError
from headwater.security.nkeys import KeyPair

NATS_SERVER = Path(sys.executable).parent / "nats-server"
SEPARATOR = "\n----\n"
WORKERS = 4


def configurations(directory: Path) -> list[Path]:
    """Every configuration in a file of its own, with keys put in."""
    user = KeyPair.create("U")
    text = (Path(__file__).parent / "differential.txt").read_text().removesuffix("\n")
    for name, key in (
        ("@USER@", user.public_key),
        ("@SEED@", user.seed),
        ("@ACCOUNT@", KeyPair.create("A").public_key),
    ):
        text = text.replace(name, key)
    (directory / "inc.conf").write_text("max_payload: 1MB\nfoo_var: 12\n")
    paths = []
    for index, configuration in enumerate(text.split(SEPARATOR)):
        path = directory / f"c{index}.conf"
        path.write_text(configuration)
        paths.append(path)
    return paths


def judged_by_nats_server(path: Path) -> tuple[bool, str]:
    """Whether nats-server takes a file, and what it says."""
    run = subprocess.run(
        [NATS_SERVER, "-t", "-c", path], capture_output=True, text=True, check=False
    )
    return run.returncode == 0, run.stderr


def judged_here(path: Path) -> tuple[bool, str]:
    """Whether a file is taken without a warning; its digest, or what is wrong with it."""
    try:
        loaded = load_file(path)
    except ConfigError as error:
        missing = all(UNSUPPORTED in problem for problem in error.problems)
        return missing, UNSUPPORTED if missing else str(error)
    warnings = [warning for warning in loaded.warnings if NO_EFFECT not in warning]
    if warnings:
        return False, "; ".join(warnings)
    return True, loaded.options.config_digest


def test_nats_server_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = configurations(tmp_path)
    assert len(paths) > 300
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(judged_by_nats_server, paths))
    differences = []
    for path, (accepted, said) in zip(paths, verdicts, strict=True):
        taken, found = judged_here(path)
        if found != UNSUPPORTED and (taken != accepted or (taken and found not in said)):
            differences.append(f"{path.read_text()!r}\n  here: {found}\n  nats-server: {said}")
    assert not differences, "\n".join(differences)
