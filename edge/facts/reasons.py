"""What an error says to a person."""


def reason(error: BaseException) -> str:
    """Its text, without the number of a system error, and with the file that it is about.

    What has no text is told by its type; an error that wraps another (`URLError`) by that one.
    """
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return reason(inner)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
