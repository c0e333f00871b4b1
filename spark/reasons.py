"""What went wrong in Spark, in a line, with what to do."""

import re

_DOCTOR = "see what executors have with: headwater spark doctor --master URL"
#: What Spark says of executors that cannot run our code, with what to do.
_EXECUTORS = {
    r"Cannot run program \"[^\"]+\"": (
        f"set PYSPARK_PYTHON to a Python of every executor; {_DOCTOR}"
    ),
    r"Python in worker has different version[^\n]{0,80}": (
        f"set PYSPARK_PYTHON to the driver's version; {_DOCTOR}"
    ),
    r"No module named '(headwater|pyarrow|msgspec)[^']*'": (
        f"install headwater[spark] on every executor, or ship it with --archives; {_DOCTOR}"
    ),
    r"JAVA_GATEWAY_EXITED": "Java did not start; look into: headwater spark doctor",
    r"Python worker failed to connect back": (
        "Spark gives a Python process ten seconds to start; start it again when the machine is "
        f"less busy, or {_DOCTOR}"
    ),
}
#: What Spark says without saying what to do about it.
_REFUSED = {
    r"headwater does not support Update mode": (
        "use outputMode append or complete, or write each microbatch in foreachBatch, with its "
        "number in writeId"
    ),
    r"\"headwater\" cannot be written in the \"\w+\" mode": "use mode('append')",
    r"`(value|key|topic|offset|partition|timestampType)` (cannot be resolved|is not supported)": (
        "Kafka's value and offset are payload and sequence here, its key is a token of subject, "
        "its topic the column stream, and there is no partition and no timestampType"
    ),
    r"headwater does not support continuous processing": (
        "take trigger(processingTime='0 seconds'), the shortest one"
    ),
    r"name `headers` cannot be resolved": "set the option headers to map or raw",
}
#: What Spark says of files of a checkpoint that it cannot read.
_DAMAGED = r"Failed to read log file [^\n]+|Checksum error: [^\n]+"
#: The same where that alone may mean other things: it is how a streaming query begins to fail.
_ENDED = r"^\[STREAM_FAILED\] [^\n]*?terminated with exception: "
_DAMAGED_OFFSETS = (
    _ENDED + r"(Input length = \d+|next on empty iterator|Unexpected (?:character|end-of-input)"
    r"[^\n]*|There are \[0\] sources in the checkpoint offsets|assertion failed: There are \[0\] "
    r"sources)"
)
#: An offset that is no JSON fails in Spark's part of a driver's Python worker.
_DAMAGED_JSON = r"PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR.*(json\.decoder\.JSONDecodeError)"
_DAMAGED_METADATA = (
    r"^An error occurred while calling \w+\.start\.\n: com\.fasterxml\.jackson\.[\w.]+\.(\w+)"
)
_TRACEBACK = "Traceback (most recent call last)"


def spark_reason(text: str) -> str:
    """The line of a Spark error that says what happened: the last one of the Python part.

    Spark wraps the source's own error in pages of stack traces of two languages.
    """
    for sign, advice in _EXECUTORS.items():
        found = re.search(sign, text)
        if found is not None:
            return f"{found.group()}: {advice}"
    marks = [line.strip() for line in text.splitlines() if "headwater.spark." in line]
    errors = [line for line in marks if line.startswith("headwater.spark.") and ": " in line]
    if errors:
        return errors[-1].partition(": ")[2]
    damage = _damage(text)
    if damage:
        return (
            f"the checkpoint is damaged ({damage}): restore the newest files of its folders "
            "'offsets' and 'commits', or begin in another folder"
        )
    text = re.sub(_ENDED, "", text)
    lines = [line.strip(": ") for line in text.splitlines() if line.strip()]
    # The bridge to the JVM names its call first, and then what happened.
    told = [line for line in lines[:2] if not line.startswith("An error occurred while calling")]
    if told and told[0].endswith(_TRACEBACK):
        # What a batch of a stream raised comes last, behind the places it went through.
        error = text.partition("=== Streaming Query ===")[0]
        raised = re.findall(r"^(?:[a-z_]+\.)*[A-Z]\w*: .+", error, re.MULTILINE)
        told = [line.partition(": ")[2] for line in raised[-1:]] or told
    if not told:
        return "Spark failed without a message"
    causes = re.findall(r"^Caused by: (.+)", text, re.MULTILINE)
    if "_WRITE_FAILED" in told[0] and causes:
        # Which files those were comes first, and why they could not be written last.
        return f"{told[0]}: {causes[-1]}"
    hints = [words for sign, words in _REFUSED.items() if re.search(sign, told[0])]
    return ": ".join([told[0].rstrip("; "), *hints])


def _damage(text: str) -> str:
    """What Spark says of a file of a checkpoint that it cannot read; empty if it was not that."""
    found = re.search(_DAMAGED, text)
    if found is not None:
        return found.group()
    if re.search(_DAMAGED_METADATA, text):
        return "its file 'metadata' is no JSON"
    found = re.search(_DAMAGED_OFFSETS, text) or re.search(_DAMAGED_JSON, text, re.DOTALL)
    return "" if found is None else f"offsets: {found.group(1)}"
