"""Has consumers' progress saved: which ones, by what, and how soon."""

from typing import Any

from headwater.edge.jetstream.progress.saver import Saver
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX, log_of
from headwater.edge.kernel.turn_order import TurnStage


def _saver(node: Any) -> Any:
    """The node's saver, made with its first consumer."""
    if node.saver is None:
        node.saver = Saver(node.storage.log, node.kernel)
        node.kernel.add_turn_hook(node.saver, TurnStage.STATES)
    return node.saver


def attach(consumer: Any) -> bool:
    """Have a consumer's progress saved from now on; False when it lives in memory only.

    A replicated stream's consumers with `mem_storage` outlive their leader, so its group keeps
    them. In a cluster those of a single replica outlive their node, as in the reference, where the
    metadata has them. What they deliver without acks is an ordered read for the most part: it must
    not burden the group with an entry in every turn, so it is saved now and then, and when the
    leader leaves.
    """
    commit_log, config = log_of(consumer.stream), consumer.config
    if commit_log is None or config.direct:
        return False
    alone = consumer.stream.replicator is None and not consumer.stream.node.clustered
    if config.mem_storage and alone:
        return False
    consumer.owner = consumer.stream.store.incarnation.encode()
    consumer.key = CONSUMER_PREFIX + consumer.name_bytes
    saver = _saver(consumer.stream.node)
    now_and_then = config.mem_storage and config.ack_policy == "none"
    consumer.use_saver(saver.use_now_and_then() if now_and_then else saver.use())
    return True


def save_all(node: Any) -> None:
    """Save now what would be saved now and then: who leads its streams is about to leave."""
    if node.saver is not None:
        node.saver.save_all()
