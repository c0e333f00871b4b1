"""Whether imports of accounts lead in a circle; for configurations and for account tokens."""

from headwater.edge.conf.options import ImportOptions
from headwater.edge.subjects.placeholders import pattern_of
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.security.subjects import covers


def local_subject(entry: ImportOptions) -> str:
    """The subject of an import in the importing account, as configured."""
    if entry.kind == "stream" and entry.prefix:
        return f"{entry.prefix.removesuffix('.')}.{entry.subject}"
    return entry.to or entry.subject


class ImportWays:
    """The imports of accounts, and where they lead. Imports are added one by one."""

    def __init__(self) -> None:
        self._trees: dict[tuple[str, str], SubjectTree] = {}
        self._left: dict[str, Steps] = {}

    def add(self, importer: str, entry: ImportOptions) -> None:
        """An account has an import."""
        tree = self._trees.setdefault((importer, entry.kind), SubjectTree())
        tree.put(pattern_of(local_subject(entry)), id(entry), entry)

    def leads_back(self, importer: str, entry: ImportOptions) -> bool:
        """Whether an import of account `importer` would bring its own messages back to it.

        What an import takes on without another name keeps the narrower subject on its way. Raises
        StepsExceeded when the imports of `importer` have taken more than `STEPS_MAX` steps.
        """
        steps = self._left.setdefault(importer, Steps())
        waiting = [(entry.account, pattern_of(entry.subject))]
        seen = set(waiting)
        while waiting:
            name, subject = waiting.pop()
            tree = self._trees.get((name, entry.kind))
            if name == importer or tree is None:
                continue
            for further in tree.overlapping(subject, steps).values():
                if further.account == importer:
                    return True
                step = further.account, _narrowed(further, subject)
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return False


def _narrowed(entry: ImportOptions, subject: str) -> str:
    """What an import asks its exporter for when `subject` of it is wanted."""
    local = pattern_of(local_subject(entry))
    same = local == entry.subject and covers(local.split("."), subject.split("."))
    return subject if same else pattern_of(entry.subject)
