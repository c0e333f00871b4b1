"""What monitoring keeps of a node beside what the node's parts count themselves."""

from collections import Counter

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.observed.process import ProcessUse
from headwater.edge.observed.tally import Tally


class Observations:
    """One per node."""

    def __init__(self, kernel: Kernel) -> None:
        self.process = ProcessUse(kernel.monotonic_ns)
        self.tally = Tally()
        self.http_requests: Counter[str] = Counter()
        self.loaded_ns = kernel.wall_ns()
        """When the configuration in force was read."""
