"""What both servers say of a configuration file, without a start."""

import subprocess
import sys
from pathlib import Path

from headwater.edge.conf.enforcement import NO_EFFECT, UNSUPPORTED
from headwater.edge.conf.load import load_file
from headwater.edge.conf.problems import ConfigError
from headwater.security.nkeys import KeyPair

NATS_SERVER = Path(sys.executable).parent / "nats-server"
SEPARATOR = "\n----\n"


def configurations(directory: Path) -> list[str]:
    """Every configuration of `differential.txt`, with keys put in. What they include is written to
    the folder."""
    user = KeyPair.create("U")
    text = (Path(__file__).parent / "differential.txt").read_text().removesuffix("\n")
    for name, key in (
        ("@USER@", user.public_key),
        ("@SEED@", user.seed),
        ("@ACCOUNT@", KeyPair.create("A").public_key),
    ):
        text = text.replace(name, key)
    (directory / "inc.conf").write_text("max_payload: 1MB\nfoo_var: 12\n")
    return text.split(SEPARATOR)


def judged_by_nats_server(path: Path) -> tuple[bool, str]:
    """Whether nats-server takes a file, and what it says."""
    run = subprocess.run(
        [NATS_SERVER, "-t", "-c", path], capture_output=True, text=True, check=False,
        errors="replace", cwd=path.parent,
    )  # fmt: skip
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


def unlike(path: Path, accepted: bool, said: str) -> str:
    """What is said here, when nats-server says otherwise; empty when both agree."""
    taken, found = judged_here(path)
    differs = found != UNSUPPORTED and (taken != accepted or (taken and found not in said))
    return found if differs else ""
