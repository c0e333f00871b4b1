"""JVMs of tests: they live for seconds."""

import os

JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What is compiled well pays after minutes: a test takes half of the processor time without."""


def quick_jvms() -> dict[str, str]:
    """The environment of a process whose JVMs have `JVM_FLAGS`."""
    return os.environ | {"JDK_JAVA_OPTIONS": JVM_FLAGS}
