"""What command lines say of errors of the system."""

import errno
import os
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from bench.servers import free_port
from headwater.edge.facts.reasons import reason


def test_an_error_of_a_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        (tmp_path / "a").read_text()
    assert reason(caught.value) == f"{tmp_path / 'a'}: No such file or directory"


def test_an_error_of_a_connection_has_no_number() -> None:
    with pytest.raises(URLError) as caught:
        urlopen(f"http://127.0.0.1:{free_port()}/", timeout=5)
    assert reason(caught.value) == os.strerror(errno.ECONNREFUSED)


def test_what_has_no_text_is_told_by_its_type() -> None:
    assert reason(TimeoutError()) == "TimeoutError"
    assert reason(ValueError("no such stream")) == "no such stream"
