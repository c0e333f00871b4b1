"""Subjects of an import on both sides, and how one becomes the other."""

from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_cycles import local_subject
from headwater.edge.subjects.placeholders import is_placeholder, pattern_of, tokenized
from headwater.edge.subjects.transform import (
    Transform,
    TransformError,
    reversed_transform,
    transform,
    well_formed,
)
from headwater.security.subjects import is_valid_subject


def check_subjects(entry: ImportOptions) -> None:
    """Refuse an import with a subject that is none, or whose subjects do not fit together. Raises
    TransformError."""
    local = local_subject(entry)
    if not is_valid_subject(entry.subject):
        raise TransformError("invalid subject")
    if local != entry.subject:
        if not well_formed(local):
            raise TransformError(f"invalid local subject {local!r}")
        if any(map(is_placeholder, entry.subject.split("."))):
            raise TransformError("a word of the subject stands for a wildcard: use another one")
    if entry.kind == "service":
        service_subjects(entry)
        return
    if any(token in ("*", ">") for token in entry.prefix.split(".")):
        raise TransformError("stream import prefix can not contain wildcard tokens")
    if _is_literal(entry.subject) and not _is_literal(local):
        raise TransformError(f"{local!r} has wildcards and {entry.subject!r} has none")
    stream_subjects(entry)


def service_subjects(entry: ImportOptions) -> tuple[str, bytes | None, Transform | None]:
    """Local pattern of a service import, and how to come from it to the remote subject.

    A remote subject without wildcards is fixed; with the same subject on both sides, neither a
    fixed subject nor a transform is needed. Raises TransformError.
    """
    local = local_subject(entry)
    remote = entry.subject
    if local == remote:
        return local, None, None
    if _is_literal(remote):
        return pattern_of(local), remote.encode(), None
    _, back = _both_ways(entry, local)
    return pattern_of(local), None, back


def stream_subjects(entry: ImportOptions) -> tuple[str, Transform | None, Transform | None]:
    """Local pattern of a stream import, and the transforms from and to the remote subject.

    Raises TransformError.
    """
    local = local_subject(entry)
    if local == entry.subject or _is_literal(entry.subject):
        return local, None, None
    forward, back = _both_ways(entry, local)
    return pattern_of(local), forward, back


def _is_literal(subject: str) -> bool:
    return not any(token in ("*", ">") for token in subject.split("."))


def _both_ways(entry: ImportOptions, local: str) -> tuple[Transform, Transform]:
    """Remote to local, and back."""
    destination = tokenized(local)
    try:
        forward = transform(entry.subject, destination, strict=True)
        return forward, reversed_transform(entry.subject, destination)
    except TransformError as error:
        pair = (entry.subject, local) if entry.kind == "stream" else (local, entry.subject)
        raise TransformError(
            f"failed to create mapping transform for {entry.kind} import subject "
            f'from "{pair[0]}" to "{pair[1]}": {error}'
        ) from error
