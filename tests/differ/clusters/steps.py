"""Histories of one stream in a cluster of three, made up from a seed.

They are histories of `histories.py` with replicas, places and changes of them. A step may be asked
of the system account (`sys`), and `steady` waits until both clusters have done what was asked.
"""

import random
import re
from typing import Any

from tests.differ.histories import DURABLES, Maker, Step, api

TAGS = ["az:0", "az:1", "az:2", "all", "!az:0", "none", "AZ:1", ""]
PEERS = ["n0", "n1", "n2", "n9", ""]
PLACES: list[Any] = [
    *({"tags": [tag]} for tag in TAGS),
    {"cluster": "C"}, {"cluster": "other"}, {"cluster": "C", "tags": ["az:1"]},
    {"tags": ["az:0", "az:1"]}, {}, {"preferred": "n1"},
]  # fmt: skip
ASKED_PLACES: list[Any] = [
    None, None, {"preferred": ""}, {}, {"preferred": "n9"},
    {"tags": ["az:2"]}, {"tags": ["none"]}, {"cluster": "C"}, {"cluster": "other"},
]  # fmt: skip
REPLICAS = [None, 1, 1, 3, 3, 3, 2, 0, 4, 5, 6, -1]
_WAIT = r'"(?:ack_wait|backoff)": (?:\[[^]]*\]|\d+)'
PACED = re.compile(f"{_WAIT}, |, {_WAIT}")
EXPECTED_ID = "Nats-Expected-Last-Msg-Id"
STEADY: Step = {"do": "steady"}


class ClusterMaker(Maker):
    """Makes the steps of one history in a cluster."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.chance = random.Random(f"cluster {seed}")

    def create_stream(self) -> Step:
        super().create_stream()
        chance = self.chance
        self.stream["num_replicas"] = chance.choice([1, 3, 3])
        if chance.random() < 0.3:
            self.stream["placement"] = {"tags": [chance.choice(["all", "az:1"])]}
            if self.stream["placement"]["tags"] != ["all"]:
                self.stream["num_replicas"] = 1
        if self.stream["num_replicas"] > 1:
            self.stream.pop("persist_mode", None)
        return api("STREAM.CREATE.%", self.stream)

    def consumer(self) -> Step:
        step = super().consumer()
        chance = self.chance
        # While one cluster is waited for, nothing is to come again in the other.
        step["body"] = PACED.sub("", step["body"])
        if chance.random() < 0.4:
            number = chance.choice([n for n in REPLICAS if n is not None])
            begin = '"config": {'
            step["body"] = step["body"].replace(begin, f'{begin}"num_replicas": {number}, ', 1)
        return step

    def placed(self) -> list[Step]:
        """A stream made or changed with odd replicas and places."""
        chance = self.chance
        config = dict(self.stream)
        replicas = chance.choice(REPLICAS)
        if replicas is not None:
            config["num_replicas"] = replicas
        if chance.random() < 0.5:
            config["placement"] = chance.choice(PLACES)
            if config.get("num_replicas") == -1:
                config["num_replicas"] = 0
        verb = chance.choice(["UPDATE", "UPDATE", "CREATE"])
        return [api(f"STREAM.{verb}.%", config), STEADY, INFO]

    def moved(self) -> list[Step]:
        """Somebody is to lead, or a replica to go."""
        chance = self.chance
        name = chance.choice(DURABLES)
        place = chance.choice(ASKED_PLACES)
        body = None if place is None else {"placement": place}
        asked = chance.choice([
            api("STREAM.LEADER.STEPDOWN.%", body),
            api("STREAM.LEADER.STEPDOWN.%", body),
            api("STREAM.LEADER.STEPDOWN.%X", body),
            api(f"CONSUMER.LEADER.STEPDOWN.%.{name}", body),
            api(f"CONSUMER.LEADER.STEPDOWN.%.{name}", body),
            api("STREAM.PEER.REMOVE.%", {"peer": chance.choice(["n9", "", "n 1", "*"])}),
            api("STREAM.PEER.REMOVE.%X", {"peer": chance.choice(PEERS)}),
            api("STREAM.PEER.REMOVE.%", None),
        ])  # fmt: skip
        return [asked, STEADY, INFO, api("CONSUMER.LIST.%", None)]

    def system(self) -> list[Step]:
        """What only the system account may ask, refused in most cases."""
        chance = self.chance
        odd = [{"preferred": "n9"}, {"tags": ["none"]}, {"cluster": "other"}]
        step = chance.choice([
            api("META.LEADER.STEPDOWN", {"placement": chance.choice(odd)}),
            api("SERVER.REMOVE", {"peer": chance.choice(["n9", ""])}),
            api("SERVER.REMOVE", {"peer_id": chance.choice(["x", "nobody9"])}),
            api("SERVER.REMOVE", None),
            api("ACCOUNT.STREAM.MOVE.@.%", {"server": "n9"}),
            api("ACCOUNT.STREAM.MOVE.@.%X", {"server": "n1", "cluster": "C"}),
            api("ACCOUNT.STREAM.MOVE.X.%", {"server": "n1"}),
            api("ACCOUNT.STREAM.MOVE.@.%", {"cluster": "other"}),
            api("ACCOUNT.STREAM.MOVE.@.%", None),
            api("ACCOUNT.STREAM.CANCEL_MOVE.@.%", None),
            api("ACCOUNT.STREAM.CANCEL_MOVE.@.%X", None),
            api("ACCOUNT.PURGE.X", None),
        ])  # fmt: skip
        return [{**step, "sys": chance.random() < 0.8}]

    def asked(self) -> Step:
        """What is there, maybe by the domain's name."""
        chance = self.chance
        step = chance.choice([
            api("STREAM.NAMES", chance.choice([None, {"subject": "%.a"}])),
            api("STREAM.LIST", chance.choice([None, {"subject": "%.a"}, {"offset": 5}])),
            api("CONSUMER.NAMES.%", None), api("CONSUMER.LIST.%", None), api("STREAM.INFO.%", None),
            api("STREAM.INFO.%X", None), api("INFO", None), api("STREAM.DELETE.%X", None),
            api("STREAM.PURGE.%X", None), api("CONSUMER.LIST.%X", None),
            api("CONSUMER.NAMES.%X", None), api("CONSUMER.INFO.%.X", None),
            api("CONSUMER.INFO.%X.X", None), api("CONSUMER.DELETE.%.X", None),
            api("STREAM.MSG.DELETE.%X", {"seq": 1}), api("STREAM.MSG.GET.%X", {"seq": 1}),
            api("STREAM.SNAPSHOT.%X", {"deliver_subject": "x"}),
            api("CONSUMER.PAUSE.%.X", {"pause_until": "2100-01-01T00:00:00Z"}),
            api("CONSUMER.RESET.%.X", None), api("CONSUMER.UNPIN.%.X", {"group": "g"}),
        ])  # fmt: skip
        if chance.random() < 0.3:
            step["subject"] = step["subject"].replace("$JS.API", "$JS.D.API")
        return step

    def steps(self) -> list[Step]:
        chance = self.chance
        made: list[Step] = [self.create_stream(), STEADY]
        made += [self.publish() for _ in range(chance.randrange(4))]
        made += [self.consumer(), STEADY]
        for _ in range(chance.randrange(8, 20)):
            kind = chance.choices(
                ["publish", "pull", "ack", "other", "consumer", "placed", "moved", "system",
                 "asked", "atomic"],
                [5, 5, 6, 4, 3, 2, 2.5, 1.5, 3, 0.7],
            )[0]  # fmt: skip
            if kind in ("placed", "moved", "system", "atomic"):
                made += getattr(self, kind)()
            elif kind == "consumer":
                made += [self.consumer(), STEADY]
            else:
                made.append(getattr(self, kind)())
        for step in made:
            if "headers" in step:
                # Behind one that is refused, a replicated stream of nats-server is silent for good.
                step["headers"] = [each for each in step["headers"] if each[0] != EXPECTED_ID]
        return [*made, STEADY, INFO, api("CONSUMER.LIST.%", None)]


INFO = api("STREAM.INFO.%", {"subjects_filter": ">", "deleted_details": True})


def cluster_history(seed: int) -> list[Step]:
    """The steps of this seed."""
    return ClusterMaker(seed).steps()
