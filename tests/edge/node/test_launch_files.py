"""The pid file of a node that ends."""

import os
from pathlib import Path

from headwater.edge.conf.options import Options
from headwater.edge.node.launch_files import remove_files, write_files


def test_the_pid_file_of_a_node_that_was_started_meanwhile_stays(tmp_path: Path) -> None:
    """As of a restart whose old node is in lame duck mode while the new one serves."""
    path = tmp_path / "pid"
    options = Options(pid_file=str(path), ports_file_dir=str(tmp_path))
    write_files(options, {})
    path.write_text("1")
    remove_files(options)
    assert [found.name for found in tmp_path.iterdir()] == ["pid"]
    assert path.read_text() == "1"


def test_the_own_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    options = Options(pid_file=str(path), ports_file_dir=str(tmp_path))
    write_files(options, {})
    assert path.read_text() == str(os.getpid())
    assert len(list(tmp_path.iterdir())) == 2
    remove_files(options)
    assert list(tmp_path.iterdir()) == []
