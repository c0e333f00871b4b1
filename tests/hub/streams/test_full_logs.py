"""A leader whose log is behind has publishers wait, before the log refuses all groups."""

from tests.hub.streams.stream_cluster import StreamCluster

MESSAGE = bytes(4000)
COUNT = 400
"""More than the log holds, when nothing of it is checkpointed."""


def test_publishers_wait_before_the_log_refuses_entries() -> None:
    cluster = StreamCluster()
    cluster.make()
    leader = cluster.leader()
    store = leader.jetstream.store()
    store.checkpointer.stopped = True
    told: list[bool] = []

    def publish() -> None:
        leader.kernel.congested = None
        leader.account.send(b"s.a", MESSAGE, own=True)
        told.append(leader.kernel.congested is not None)
        leader.kernel.turn()

    while not (told and told[-1]) and len(told) < COUNT:
        leader.loop.call_soon(publish)
        cluster.sleep(0.01)
    assert told[-1], "nobody had to wait"
    # What is on its way then has room, and so have other groups.
    assert store.log.backlog() < 7 * store.log.segment_bytes
    assert leader.ask("s.a", b"on its way")["seq"] == len(told) + 1
    store.checkpointer.stopped = False
    store.checkpointer.wake()
    cluster.wait(lambda: not store.log.congested)
