"""Bugs planted into the meta group and what acts on it, one at a time; a story must find each."""

from typing import Any

import msgspec

from headwater.hub.meta.applier import Applier
from headwater.hub.meta.assignment import FIRST_STREAM_GROUP, NO_GROUP, Gone, encode
from headwater.hub.meta.meta_group import MetaGroup
from headwater.hub.meta.state import MetaState
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.stored.arrival import Arrival
from headwater.hub.streams.stream_group import StreamGroup
from headwater.hub.streams.stream_groups import StreamGroups
from tests.hub.streams.stream_bugs import Plant, Put

BUGS: dict[str, Plant] = {}


def bug(entered: Plant) -> Plant:
    """Enter a bug under its name."""
    BUGS[entered.__name__] = entered
    return entered


@bug
def a_name_is_given_twice(put: Put) -> None:
    put(MetaState, "_refused", lambda self, wanted: "")


@bug
def subjects_are_not_compared(put: Put) -> None:
    put(MetaState, "overlapping", lambda self, account, subjects, own: False)


@bug
def versions_are_not_compared(put: Put) -> None:
    def refused(self: MetaState, wanted: Any) -> str:
        there = self.streams.get(wanted.key)
        if there is not None and wanted.version:
            wanted = msgspec.structs.replace(wanted, version=there.assignment.version + 1)
        return true(self, wanted)

    true = MetaState._refused
    put(MetaState, "_refused", refused)


@bug
def a_group_number_is_given_twice(put: Put) -> None:
    def apply(self: MetaState, store: Any, entry: Any) -> Any:
        found = true(self, store, entry)
        if isinstance(found, Gone):
            self.rest.next_group = FIRST_STREAM_GROUP
        return found

    true = MetaState.apply
    put(MetaState, "apply", apply)


@bug
def the_state_forgets_its_numbers(put: Put) -> None:
    put(MetaState, "state", lambda self: b"")


@bug
def an_incarnation_is_used_again(put: Put) -> None:
    def refused(self: MetaState, wanted: Any) -> str:
        gone, self.gone = self.gone, {}
        try:
            return true(self, wanted)
        finally:
            self.gone = gone

    true = MetaState._refused
    put(MetaState, "_refused", refused)


@bug
def an_old_deletion_takes_a_new_stream(put: Put) -> None:
    def apply(self: MetaState, store: Any, entry: Any) -> Any:
        self.load()
        operation = msgspec.json.decode(entry.data)
        if operation["type"] == "gone":
            there = self.streams.get((operation["account"], operation["name"]))
            if there is not None:
                late = Gone(
                    account=there.assignment.account,
                    name=there.name,
                    incarnation=there.assignment.incarnation,
                )
                entry = entry._replace(data=encode(late))
        return true(self, store, entry)

    true = MetaState.apply
    put(MetaState, "apply", apply)


@bug
def a_leader_answers_before_a_quorum_has_it(put: Put) -> None:
    async def submit(self: MetaGroup, operation: Any) -> Any:
        raft = self.raft
        settled = isinstance(operation, Gone) or operation.version
        if raft is not None and self.leads and settled:
            try:
                raft.propose([encode(operation)])
            except RaftError:
                return await true(self, operation)
            self.driver.touch(raft)
            return operation
        return await true(self, operation)

    true = MetaGroup.submit
    put(MetaGroup, "submit", submit)


@bug
def what_was_deleted_meanwhile_stays(put: Put) -> None:
    put(StreamGroups, "delete_gone", lambda self, gone: None)


@bug
def a_deletion_is_done_by_the_leader_alone(put: Put) -> None:
    def delete(self: StreamGroups, assignment: Any) -> None:
        if self.stream(assignment.group) is not None:
            true(self, assignment)

    true = StreamGroups.delete
    put(StreamGroups, "delete", delete)


@bug
def a_description_does_not_travel_with_a_state(put: Put) -> None:
    def init(self: Arrival, *arguments: Any) -> None:
        true(self, *arguments)
        self._describe = lambda store, meta: None

    true = Arrival.__init__
    put(Arrival, "__init__", init)


@bug
def a_node_that_was_taken_out_keeps_its_replica(put: Put) -> None:
    put(Applier, "leave_groups", lambda self, now: None)


@bug
def a_new_description_is_taken_over_by_no_leader(put: Put) -> None:
    put(StreamGroup, "_configure", lambda self, stream: None)


@bug
def members_stay_as_they_were(put: Put) -> None:
    put(StreamGroup, "_reconcile", lambda self, raft: None)


@bug
def a_state_that_arrives_is_not_acted_on(put: Put) -> None:
    def load(self: MetaState) -> None:
        told, self.on_load = self.on_load, lambda: None
        true(self)
        self.on_load = told

    true = MetaState.load
    put(MetaState, "load", load)


@bug
def a_stream_of_one_node_is_made_everywhere(put: Put) -> None:
    def reconcile(self: Applier, assignment: Any, *, new: bool) -> None:
        if assignment.group == NO_GROUP and self.number not in assignment.peers and new:
            assignment = msgspec.structs.replace(assignment, peers=[self.number])
        true(self, assignment, new=new)

    true = Applier.reconcile
    put(Applier, "reconcile", reconcile)


@bug
def a_stream_of_one_node_keeps_its_first_description(put: Put) -> None:
    def reconcile(self: Applier, assignment: Any, *, new: bool) -> None:
        if assignment.group != NO_GROUP or not assignment.version:
            true(self, assignment, new=new)

    true = Applier.reconcile
    put(Applier, "reconcile", reconcile)


@bug
def two_leaders_place(put: Put) -> None:
    def leads(self: MetaGroup) -> bool:
        if leading.fget(self):
            self.led_once = True
        return self.raft is not None and getattr(self, "led_once", False)

    async def submit(self: MetaGroup, operation: Any) -> Any:
        if self.raft is not None and not self.raft.is_leader and self.leads:
            return operation
        return await true(self, operation)

    true = MetaGroup.submit
    leading: Any = MetaGroup.leads
    put(MetaGroup, "leads", property(leads))
    put(MetaGroup, "submit", submit)
    put(MetaGroup, "sure", property(leads))
