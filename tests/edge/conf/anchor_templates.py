"""Configurations that the tests of nats-server contain, loaded by both servers.

`make configurations ANCHOR=CHECKOUT` reads a checkout of its sources, which this
tree does not hold, and lists what it accepts and Headwater refuses, and the other way round. What
Headwater refuses because it has no such feature is counted by name.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice, product
from pathlib import Path

from bench.servers import program
from headwater.edge.conf.enforcement import NO_EFFECT, UNSUPPORTED
from headwater.edge.conf.load import load_file
from headwater.edge.conf.problems import ConfigError
from headwater.security import creds as creds_file
from headwater.security import jwt
from headwater.security.claims import OperatorClaims
from headwater.security.nkeys import KeyPair
from tests.operator_realm import Realm
from tests.waiting import until_seen

NATS_SERVER = Path(sys.executable).parent / "nats-server"
FOLDERS = ("server", "test")
WORKERS = 2
MOST_FILLINGS = 24
START_S = 5.0
QUOTED = re.compile(r"`([^`]*)`")
JOINED = re.compile(r"`\s*\+\s*[\w.()\[\]]+\s*\+\s*`")
LOOKS_LIKE_ONE = re.compile(
    r"(?m)(?:^|[\s{;,])(port|listen|accounts|authorization|jetstream|server_name|cluster|leaf"
    r"|leafnodes|gateway|operator|resolver|websocket|mqtt|tls|http|system_account|max_\w+|mappings"
    r"|no_auth_user|ping_interval|include|host|debug|trace|lame_duck\w*|ocsp\w*)\s*[:={\"]"
)
PAIR = re.compile(r"%[sq]\s*:\s*[\"']?%[sq][\"']?")
"""The token of an account behind its key."""
NAMED = re.compile(r"\{\{(?!wildcard)\w*\}\}")
VERB = re.compile(r"(\w*)(\W*?)%([-+#]?[a-z])")
"""A place to fill: the word before it, what is between, and its verb."""


def templates(checkout: Path) -> Iterator[tuple[str, str]]:
    """Where each text stands that looks like a configuration, and the text, once each."""
    seen = set()
    for folder in FOLDERS:
        for path in sorted((checkout / folder).glob("*_test.go")):
            source = JOINED.sub("%s", path.read_text())
            for found in QUOTED.finditer(source):
                text = found[1].strip()
                if text not in seen and LOOKS_LIKE_ONE.search(text) and text[:2] != '{"':
                    seen.add(text)
                    line = source.count("\n", 0, found.start()) + 1
                    yield f"{folder}/{path.name}:{line}", text


class Values:
    """What a place may be filled with, by the word before it; the first that fits is taken."""

    def __init__(self, folder: Path) -> None:
        realm = Realm(more="CDEFGH")
        self._accounts = [f'{realm.account(each)}: "{realm.token(each)}"' for each in realm.keys]
        claims = OperatorClaims(sub=realm.operator.public_key, nats=realm.body)
        operator, account = jwt.encode(claims, realm.operator), realm.token("A")
        user = realm.user("A")
        creds = folder / "user.creds"
        creds.write_text(creds_file.render(user.token, user.pair.seed))
        key = realm.account("A")
        address = ("nats://127.0.0.1:4222",)
        self._by_word: dict[str, tuple[str, ...]] = {
            **dict.fromkeys(("store_dir", "dir"), (str(folder),)),
            **dict.fromkeys(("routes", "url", "urls"), address),
            **dict.fromkeys(("allow", "deny"), ("a", "[a]")),
            **dict.fromkeys(("allowed_connection_types", "connection_types"), ("STANDARD",)),
            **dict.fromkeys(("ping_interval", "timeout"), ("1s",)),
            **dict.fromkeys(("verify", "disabled", "isolate"), ("true",)),
            "operator": (operator,),
            "system_account": (realm.account("S"), "SYS"),
            "resolver_preload": (f"{key}: {account}",),
            "mode": ("auto", "off", "s2_fast"),
            "compression": ("off", "s2_auto", "true"),
            "credentials": (str(creds),),
            "cipher": ("aes", "chacha"),
            "xkey": (KeyPair.create("X").public_key,),
            "nkey": (user.pair.public_key,),
            "issuer": (key,),
            "min_version": ("1.2", "2.11.0"),
            "type": ("full", "cache"),
            "pinned_certs": (f'["{"a" * 64}"]',),
            "trusted": (realm.operator.public_key,),
            "local": ("A", realm.account("A")),
        }
        self._others = ("", "A", "true", '"127.0.0.1:-1"', "1s", "[A]", "{}")
        self._numbers = count(20_000)
        self._folder = folder

    def with_accounts(self, text: str) -> str:
        """A template whose pairs of keys and tokens are those of accounts."""
        accounts = cycle(self._accounts)
        return NAMED.sub("", PAIR.sub(lambda _: next(accounts), text))

    def of(self, word: str, between: str, verb: str) -> tuple[str, ...]:
        """The values to try, in order."""
        if verb[-1] == "d":
            return (str(next(self._numbers)),)
        if verb[-1] == "t":
            return ("true",)
        values = self._by_word.get(word.lower(), self._others)
        if '"' in between:
            values = tuple(value for value in values if '"' not in value)
        return tuple(f'"{value}"' for value in values) if verb[-1] == "q" else values


def fillings(text: str, values: Values) -> Iterator[str]:
    """The configurations to try of one template."""
    text = values.with_accounts(text)
    places = list(VERB.finditer(text))
    choices = [values.of(place[1], place[2], place[3]) for place in places]
    for chosen in islice(product(*choices), MOST_FILLINGS):
        pieces, at = [], 0
        for place, value in zip(places, chosen, strict=True):
            pieces += [text[at : place.start(3) - 1], value]
            at = place.end()
        yield "".join([*pieces, text[at:]]).replace("%%", "%")


def anchor_says(path: Path) -> tuple[bool, str]:
    """Whether nats-server takes a file, and what it says."""
    command = [NATS_SERVER, "-t", "-c", path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.returncode == 0, run.stderr.strip()


def started(command: tuple[str | Path, ...], path: Path) -> tuple[bool, str]:
    """Whether a server is ready with a file, rather than ending; and the end of its log."""
    log = path.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "-c", path], stdout=file, stderr=file)
    try:
        until_seen(
            lambda: process.poll() is not None or b"Server is ready" in log.read_bytes(),
            "a server is ready",
            START_S,
        )
        return process.poll() is None, log.read_text(errors="replace")[-600:]
    except AssertionError:
        return process.poll() is None, "neither ready nor ended"
    finally:
        process.kill()
        process.wait()


def says_here(path: Path) -> tuple[bool, str]:
    """The same of Headwater."""
    try:
        loaded = load_file(path)
    except ConfigError as error:
        return False, "\n".join(error.problems)
    warnings = [warning for warning in loaded.warnings if NO_EFFECT not in warning]
    return not warnings, "\n".join(warnings)


def filled(text: str, values: Values, path: Path) -> tuple[bool, str]:
    """Write the first filling that nats-server takes; what it says of this, or of the last one."""
    verdict = False, ""
    for each in fillings(text, values):
        path.write_text(each)
        verdict = anchor_says(path)
        if verdict[0]:
            break
    return verdict


class Comparison:
    """What both servers say of each template, told as it comes."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._values = Values(folder)
        self._checkout = checkout.resolve()
        self._folder = folder
        self._found = list(templates(checkout))
        self.missing: Counter[str] = Counter()
        self.tally: Counter[str] = Counter()

    def run(self, *, start: bool) -> None:
        """Compare all; with `start` what both take is started by both."""
        for folder in FOLDERS:
            # Their tests name files from the folder that they stand in.
            os.chdir(self._checkout / folder)
            here = [item for item in self._found if item[0].startswith(f"{folder}/")]
            paths = [self._folder / f"{folder}{number}.conf" for number in range(len(here))]
            texts = [text for _, text in here]
            with ThreadPoolExecutor(WORKERS) as pool:
                verdicts = pool.map(
                    lambda text, path: filled(text, self._values, path), texts, paths
                )
                for (where, _), path, verdict in zip(here, paths, verdicts, strict=True):
                    self._compare(where, path, verdict, start)

    def _started(self, command: tuple[str | Path, ...], path: Path) -> tuple[bool, str]:
        for store in (self._folder, Path(os.environ["TMPDIR"]) / "nats"):
            shutil.rmtree(store / "jetstream", ignore_errors=True)
        return started(command, path)

    def _compare(self, where: str, path: Path, theirs: tuple[bool, str], start: bool) -> None:
        ours = says_here(path)
        lines = ours[1].splitlines()
        if theirs[0] and not ours[0] and all(UNSUPPORTED in line for line in lines):
            self.missing.update(line.partition(UNSUPPORTED)[2].strip() for line in lines)
            return
        if theirs[0] and (start or not ours[0]):
            # What nats-server finds at its start only counts as a refusal, too.
            theirs = self._started((NATS_SERVER,), path)
            ours = self._started((program("headwater"), "serve"), path)
        verdicts = ["takes" if taken else "refuses" for taken, _ in (theirs, ours)]
        self.tally["nats-server {}, headwater {}".format(*verdicts)] += 1
        if theirs[0] != ours[0]:
            said = f"  here: {ours[1]}\n  there: {theirs[1]}"
            print(f"--- {where}\n{path.read_text()}\n{said}")
        elif theirs[0] is False and "%" in dict(self._found)[where]:
            self.tally["of them with places that nothing fits"] += 1


def main() -> int:
    """The command; 1 when the servers differ."""
    parser = argparse.ArgumentParser(prog="make configurations", description=__doc__)
    parser.add_argument("checkout", type=Path, help="sources of nats-server")
    parser.add_argument("--start", action="store_true", help="start what both take (minutes)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        comparison = Comparison(options.checkout, Path(name))
        os.environ["TMPDIR"] = name
        comparison.run(start=options.start)
    for line, times in (*comparison.missing.most_common(), *comparison.tally.items()):
        print(f"{times:5} {line}")
    return int(any(len(set(line.split()) & {"takes", "refuses"}) == 2 for line in comparison.tally))


if __name__ == "__main__":
    sys.exit(main())
