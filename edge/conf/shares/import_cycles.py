"""Whether imports of accounts lead in a circle; for configurations and for account tokens."""

from collections.abc import Callable, Sequence

from headwater.edge.conf.options import ImportOptions
from headwater.edge.subjects.placeholders import pattern_of
from headwater.security.subjects import covers, overlaps


def local_subject(entry: ImportOptions) -> str:
    """The subject of an import in the importing account, as configured."""
    if entry.kind == "stream" and entry.prefix:
        return f"{entry.prefix.removesuffix('.')}.{entry.subject}"
    return entry.to or entry.subject


def leads_back(
    imports_of: Callable[[str], Sequence[ImportOptions]], importer: str, entry: ImportOptions
) -> bool:
    """Whether an import of account `importer` would bring its own messages back to it.

    What an import takes on without another name keeps the narrower subject on its way.
    """
    waiting = [(entry.account, pattern_of(entry.subject))]
    seen = set(waiting)
    while waiting:
        name, subject = waiting.pop()
        if name == importer:
            continue
        for further in imports_of(name):
            local = pattern_of(local_subject(further))
            if further.kind != entry.kind or not overlaps(local.split("."), subject.split(".")):
                continue
            if further.account == importer:
                return True
            same = local == further.subject and covers(local.split("."), subject.split("."))
            step = further.account, subject if same else pattern_of(further.subject)
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return False
