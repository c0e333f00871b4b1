"""Which streams have subjects that overlap with a subject, without asking every stream."""

from typing import Any

from headwater.edge.subjects.subject_tree import Steps, SubjectTree


class SubjectIndex:
    """Subjects of the streams of one account. Grows with them."""

    def __init__(self) -> None:
        self.tree = SubjectTree()

    def enter(self, stream: Any) -> None:
        """A stream has the subjects of its configuration from now on."""
        for subject in stream.config.subjects:
            self.tree.put(subject, stream.name, stream)

    def leave(self, stream: Any) -> None:
        """A stream's configuration does not count any more."""
        for subject in stream.config.subjects:
            self.tree.remove(subject, stream.name)

    def overlaps_others(self, subjects: list[str], name: str, steps: Steps) -> bool:
        """Whether another stream than that one may get some message which a subject matches.
        Raises StepsExceeded when that takes more steps."""
        return any(self.tree.overlaps_others(subject, name, steps) for subject in subjects)

    def overlapping(self, subject: str) -> dict[str, Any]:
        """Streams by name that may get some message which `subject` matches."""
        return self.tree.overlapping(subject)
