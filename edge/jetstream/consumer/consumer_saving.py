"""Has consumers' progress saved: which ones, and by what."""

from typing import Any

from headwater.edge.jetstream.progress.saver import Saver
from headwater.edge.jetstream.stream.stream_states import CONSUMER_PREFIX, log_of
from headwater.edge.kernel.turn_order import TurnStage


def _saver(node: Any) -> Any:
    """The node's saver, made with its first consumer."""
    if node.saver is None:
        node.saver = Saver(node.storage.log)
        node.kernel.add_turn_hook(node.saver, TurnStage.STATES)
    return node.saver


def attach(consumer: Any) -> bool:
    """Have a consumer's progress saved from now on; False when it lives in memory only."""
    commit_log = log_of(consumer.stream)
    if commit_log is None or consumer.config.mem_storage or consumer.config.direct:
        return False
    consumer.owner = consumer.stream.store.incarnation.encode()
    consumer.key = CONSUMER_PREFIX + consumer.name_bytes
    consumer.use_saver(_saver(consumer.stream.node).use())
    return True
