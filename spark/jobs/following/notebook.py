"""What a job that follows has done: a file in its folder, replaced in one step after each batch.

Whatever else a batch wrote is there before the file names the batch. So a batch that was cut off
is done again, from the state before it, and one that the file names is passed over.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.spark.errors import OptionError
from headwater.spark.jobs.job import check_writable
from headwater.spark.jobs.whole_file import unfinished, write_whole

NAME = "_follow.json"


class Notebook:
    """The file of one job. `batch` is the last batch that is done, -1 for none; `memo` is what the
    job keeps, `totals` its sums over all runs."""

    def __init__(self, folder: str, request: Mapping[str, str]) -> None:
        """Open or begin. `request` says what must stay the same when the job goes on.

        Raises OptionError for a folder of another job, with other files in it, or that cannot be
        made.
        """
        if "://" in folder:
            raise OptionError(f"{folder} is on no mounted file system, which --follow needs")
        check_writable(folder)
        self.folder = Path(folder)
        self.request = dict(request)
        self.query = ""
        self.batch = -1
        self.memo: dict[str, Any] = {}
        self.totals: dict[str, int] = {}
        if (self.folder / NAME).exists():
            self._restore()
        elif self.folder.exists() and self._strange():
            raise OptionError(f"{folder} has other files in it: choose another folder")

    def _strange(self) -> bool:
        """Whether the folder has what no notebook left there that could not be begun."""
        return bool(set(self.folder.iterdir()) - {unfinished(self.folder / NAME)})

    def _restore(self) -> None:
        try:
            found = json.loads((self.folder / NAME).read_text())
            old = found["request"]
            self.query, self.batch = found["query"], found["batch"]
            self.memo, self.totals = found["memo"], found["totals"]
            names = sorted(old.keys() | self.request.keys())
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise OptionError(f"{self.folder / NAME} cannot be read: {error}") from error
        for name in names:
            if old.get(name) != self.request.get(name):
                raise OptionError(
                    f"the job in {self.folder} has {name} {old.get(name)!r}, not "
                    f"{self.request.get(name)!r}: go on with the same, or choose another folder"
                )

    def begin(self) -> None:
        """Make the folder, and the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / NAME).exists():
            self.write()

    def done(self, batch: int, memo: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """A batch is done: keep `memo`, add `counts` to the totals."""
        self.batch, self.memo = batch, dict(memo)
        for name, count in counts.items():
            self.totals[name] = self.totals.get(name, 0) + count
        self.write()

    def write(self) -> None:
        """Replace the file. Raises SourceError when it cannot be written."""
        said = {
            "request": self.request,
            "query": self.query,
            "batch": self.batch,
            "memo": self.memo,
            "totals": self.totals,
        }
        write_whole(self.folder / NAME, said)


def request_of(job: str, source: Mapping[str, str], **more: str) -> dict[str, str]:
    """What must stay the same: the job, what it reads, `more`. Servers and logins may change."""
    given = {name.lower(): text for name, text in source.items()}
    same = ("stream", "streams", "domain", "subjects", "starting", "startingtimestamp")
    wanted = {name: given[name] for name in same if name in given}
    return {"job": job, **wanted, **{name: text for name, text in more.items() if text}}
