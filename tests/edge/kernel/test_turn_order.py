"""The order of a turn's end, and of those who hear of a store's news."""

import asyncio

from headwater.edge.kernel.kernel import Kernel, StagedTasks, Task
from headwater.edge.kernel.turn_order import NewsStage
from headwater.edge.storage.index.memory import MemoryStore


def test_tasks_stand_in_the_order_of_their_stages_and_then_as_they_came() -> None:
    staged = StagedTasks()
    last, first, second, middle = (Task() for _ in range(4))
    for task, stage in ((last, 2), (first, 0), (second, 0), (middle, 1)):
        staged.add(task, stage)
    assert staged.tasks == [first, second, middle, last]
    staged.add(first, 2)
    assert staged.tasks == [second, middle, last, first]
    staged.remove(middle)
    staged.remove(middle)
    staged.add(middle, 1)
    assert staged.tasks == [second, middle, last, first]


def test_a_change_leaves_the_run_that_is_on_its_way_alone() -> None:
    staged = StagedTasks()
    tasks = [Task(), Task()]
    for task in tasks:
        staged.add(task, 0)
    running = staged.tasks
    staged.remove(tasks[0])
    staged.add(Task(), 0)
    assert running == tasks


async def test_a_store_tells_one_listener_itself_and_several_in_order() -> None:
    store = MemoryStore(Kernel(asyncio.get_running_loop()))
    origins, stream = Task(), Task()
    store.listen(origins, NewsStage.ORIGINS)
    store.listen(origins, NewsStage.ORIGINS)
    assert store.listener is origins
    store.listen(stream, NewsStage.STREAM)
    assert store.listener.tasks == [stream, origins]
    store.unlisten(origins)
    store.unlisten(origins)
    assert store.listener.tasks == [stream]
    store.listen(origins, NewsStage.ORIGINS)
    assert store.listener.tasks == [stream, origins]
