"""What monitoring keeps of a node beside what the node's parts count themselves."""

import time
from collections import Counter

from headwater.edge.monitor.process import ProcessUse
from headwater.edge.monitor.tally import Tally


class Observations:
    """One per node."""

    def __init__(self) -> None:
        self.process = ProcessUse()
        self.tally = Tally()
        self.http_requests: Counter[str] = Counter()
        self.loaded_ns = time.time_ns()
        """When the configuration in force was read."""
