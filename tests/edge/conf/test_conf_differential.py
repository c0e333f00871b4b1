"""Configurations that nats-server accepts and refuses are accepted and refused here.

`differential.txt` holds the configurations. A warning counts as a refusal, as it does for
`nats-server -t`. The digests of accepted ones must agree, too. What is refused, or has no effect,
because Headwater has no such feature is no difference.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.edge.conf.judged import configurations, judged_by_nats_server, unlike

WORKERS = 4


def test_nats_server_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = []
    for index, text in enumerate(configurations(tmp_path)):
        paths.append(tmp_path / f"c{index}.conf")
        paths[-1].write_text(text)
    assert len(paths) > 300
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = list(pool.map(judged_by_nats_server, paths))
    differences = []
    for path, (accepted, said) in zip(paths, verdicts, strict=True):
        if found := unlike(path, accepted, said):
            differences.append(f"{path.read_text()!r}\n  here: {found}\n  nats-server: {said}")
    assert not differences, "\n".join(differences)
