"""A process that reads a stream as a Python worker of Spark does, and says how it grew.

Arguments: JSON of options. It prints the rows, and by how many bytes its resident memory was at
most above what it was before the read.
"""

import json
import sys
from pathlib import Path

from headwater.spark.source import HeadwaterSource


def status(name: str) -> int:
    """A size in /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def main() -> None:
    options = json.loads(sys.argv[1])
    warm = HeadwaterSource(options | {"ending": "2"})
    reader = warm.reader(warm.schema())
    for part in reader.partitions():
        list(reader.read(part))
    source = HeadwaterSource(options)
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    before = status("VmRSS")
    # The peak begins anew.
    Path("/proc/self/clear_refs").write_text("5")
    rows = sum(batch.num_rows for batch in reader.read(part))
    print(json.dumps({"rows": rows, "grown": status("VmHWM") - before}))


if __name__ == "__main__":
    main()
