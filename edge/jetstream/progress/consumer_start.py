"""Where a new consumer begins in its stream (deliver policies of ADR-2 and the KV watch)."""

from typing import Any

from headwater.edge.jetstream.config.link_choices import after_of
from headwater.edge.jetstream.model.times import parse_time
from headwater.edge.jetstream.progress import consumer_setup as setup


def set_start(consumer: Any) -> None:
    """Set the position of a consumer that has delivered nothing yet."""
    _set_position(consumer)
    if consumer.config.ack_policy != "none" and setup.is_replicated(consumer):
        # Where nats-server replicates progress, the floor is 0 until an ack moves it.
        consumer.clear_floor()


def _set_position(consumer: Any) -> None:
    config = consumer.config
    if config.deliver_policy == "last_per_subject" and _many_per_subject(consumer.stream):
        _start_last_per_subject(consumer, consumer.stream.store.last_seq)
        return
    first = first_sequence(consumer)
    if config.deliver_policy == "last_per_subject":
        wanted = min(after_of(config.metadata), consumer.stream.store.last_seq) + 1
        first = max(first, wanted)
    consumer.start_at(first)


def _many_per_subject(stream: Any) -> bool:
    """Whether a subject may hold several messages; otherwise its only one is its last."""
    return bool(stream.config.max_msgs_per_subject != 1)


def first_sequence(consumer: Any) -> int:
    """Sequence from which the first message is looked for."""
    config = consumer.config
    store = consumer.stream.store
    policy = config.deliver_policy
    if policy == "by_start_sequence":
        return int(max(config.opt_start_seq, store.first_seq))
    if policy == "by_start_time":
        start = int(store.sequence_at_time(parse_time(config.opt_start_time)))
        start = _first_wanted(store, setup.patterns(config), start)
    elif policy == "last":
        wanted = setup.patterns(config)
        start = store.last_seq
        if wanted:
            start = max(store.last_sequences(list(wanted)), default=0)
    elif policy == "new":
        start = store.last_seq + 1
    else:
        start = store.first_seq
    return int(min(max(start, store.first_seq), store.last_seq + 1))


def _first_wanted(store: Any, wanted: tuple[bytes, ...], start: int) -> int:
    """`start`, or where the first message that is wanted lies when that is further on."""
    first = int(store.next_matching(store.filter(wanted), 0)) if wanted else 0
    return first if start < first < store.last_seq else start


def _start_last_per_subject(consumer: Any, resume: int) -> None:
    wanted = list(setup.patterns(consumer.config)) or [b">"]
    after = after_of(consumer.config.metadata)
    sequences = [s for s in consumer.stream.store.last_sequences(wanted) if s > after]
    consumer.set_skip(sequences, resume)
    start = sequences[0] if sequences else resume
    consumer.start_after(max(start, consumer.stream.store.first_seq, 1) - 1)


def resume_last_per_subject(consumer: Any) -> None:
    """Go on with a last-per-subject phase after a restart: what is left of it."""
    wanted = list(setup.patterns(consumer.config)) or [b">"]
    resume = consumer.skip_resume
    delivered = consumer.numbers()["delivered_seq"]
    sequences = consumer.stream.store.last_sequences(wanted, resume)
    consumer.set_skip([s for s in sequences if s > delivered], resume)
