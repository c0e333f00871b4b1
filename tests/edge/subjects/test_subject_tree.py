"""Overlaps and covers of many patterns: as a look at every pair has it, at a bounded cost."""

import random
import time

import pytest

from headwater.edge.jetstream.config import consumer_config, stream_config
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import ConsumerConfig, StreamConfig
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.edge.subjects.tokens import covers, overlap
from headwater.security.errors import StepsExceeded
from tests.measuring import within

TOKENS = ["a", "b", "c", "*", "*"]


def some_subject(chance: random.Random) -> str:
    tokens = [chance.choice(TOKENS) for _ in range(chance.randint(1, 4))]
    return ".".join([*tokens, ">"] if chance.random() < 0.2 else tokens)


def test_pairs() -> None:
    chance = random.Random(11)
    for _ in range(50):
        subjects = [some_subject(chance) for _ in range(20)]
        tree, steps = SubjectTree(), Steps()
        for i, subject in enumerate(subjects):
            tree.put(subject, i, subject)
        for subject in subjects:
            raw = subject.encode()
            found = {i for i, each in enumerate(subjects) if covers(each.encode(), raw)}
            assert set(tree.covering(subject, steps)) == found
            found = {i for i, each in enumerate(subjects) if overlap(each.encode(), raw)}
            assert set(tree.overlapping(subject, steps)) == found


def test_long_ways_are_cut_short() -> None:
    tree = SubjectTree()
    for i in range(2000):
        tree.put(f"a{i}.x", i, i)
    steps = Steps(10_000)
    with pytest.raises(StepsExceeded):
        for i in range(2000):
            tree.overlapping(f"*.b{i}", steps)


def check_stream(subjects: list[str]) -> None:
    scope = stream_config.Scope(lookup=lambda name: None)
    stream_config.checked(StreamConfig(name="S", subjects=subjects, no_ack=True), scope)


def check_consumer(subjects: list[str]) -> None:
    config = ConsumerConfig(filter_subjects=subjects, ack_policy="explicit", num_replicas=0)
    stream = StreamConfig(name="S", subjects=[">"], num_replicas=1)
    consumer_config.fill(config, stream, consumer_config.Limits(), False)
    consumer_config.check(config, stream, consumer_config.Limits())


@pytest.mark.parametrize("check", [check_stream, check_consumer])
def test_ten_thousand_subjects_are_checked_at_once(check: object) -> None:
    before = time.process_time()
    check([f"sensors.{i}.value" for i in range(10_000)])  # type: ignore[operator]
    assert within(time.process_time() - before, 1, time.process_time)


@pytest.mark.parametrize("check", [check_stream, check_consumer])
def test_subjects_made_to_be_slow_are_refused(check: object) -> None:
    before = time.process_time()
    worst = [f"a{i}.x.*" for i in range(5000)] + [f"*.y.b{i}" for i in range(5000)]
    try:
        check(worst)  # type: ignore[operator]
    except JetStreamError as error:
        assert "too many to compare" in str(error)
    assert within(time.process_time() - before, 3, time.process_time)
