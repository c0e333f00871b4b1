"""/stacksz: what every thread and task of the process is doing right now."""

import asyncio
import sys
import threading
import traceback
from io import StringIO


def stacksz() -> str:
    """Stacks as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, ident)}:\n{stack}")
    for task in asyncio.all_tasks():
        text = StringIO()
        task.print_stack(file=text)
        parts.append(f"task {task.get_name()}:\n{text.getvalue()}")
    return "\n".join(parts)
