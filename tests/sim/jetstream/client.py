"""The client of one consumer: fetches, answers, and makes the consumer anew when it was deleted."""

import json
from typing import Any

from headwater.edge.storage.format.crc import checksum
from tests.sim.jetstream.consumer_book import ConsumerBook
from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.stream_book import StreamBook
from tests.sim.jetstream.world import SECOND_NS, World

STREAM = "S"
NOT_FOUND = 10014
NAK_DELAY_NS = SECOND_NS


class ConsumerClient:
    """One consumer by its name. `book` is that of its present making."""

    def __init__(self, story: Any, config: dict[str, Any]) -> None:
        self.story = story
        self.world: World = story.world
        self.machine: Machine = story.origin
        self.stream: StreamBook = story.book
        self.config = config
        self.name = str(config["durable_name"])
        self.pushed = "deliver_subject" in config
        self.state = "none"
        """"none", "creating", "there" or "deleting"."""
        self.book = self.new_book()
        self.asked_life = 0
        """In which start of the node the present making or deletion was asked for. A second such
        request is answered by what the node knows, which may not be durable yet."""
        self.careful = False
        """Acknowledges everything, and asks for an answer."""

    def new_book(self) -> ConsumerBook:
        """Nothing was delivered yet."""
        config = self.config
        return ConsumerBook(
            self.world,
            self.stream,
            self.name,
            config["ack_wait"],
            max(config["max_deliver"], 0),
            config["max_ack_pending"],
            tuple(config.get("filter_subjects", ())),
        )

    # -- the consumer's life ----------------------------------------------------------

    def connect(self) -> None:
        """The node was started: listen again."""
        if self.pushed and self.machine.node is not None:
            self.machine.listen(self.config["deliver_subject"], self.got)

    def see_to(self) -> None:
        """Ask again for what was not answered."""
        if self.state in ("none", "creating"):
            self.create()
        elif self.state == "deleting":
            self.delete()

    def create(self) -> None:
        """Make the consumer."""
        if self.state == "creating" and self.asked_life == self.machine.life:
            return
        if self.state == "none":
            self.book = self.new_book()
        self.state, self.asked_life = "creating", self.machine.life
        body = {"stream_name": STREAM, "config": self.config}
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{self.name}"
        self.machine.request(subject, json.dumps(body).encode(), self.created)

    def created(self, _: bytes, payload: bytes) -> None:
        """The answer."""
        answer = json.loads(payload)
        if "error" in answer:
            self.asked_life = 0
            self.story.refused(f"{self.name} is not made", answer["error"])
        elif self.state == "creating":
            self.world.note(f"{self.name} is made")
            self.state = "there"
            self.story.on_disk(answer_to=self.machine.life, event=0)

    def delete(self) -> None:
        """Delete it; it is made again later."""
        if self.state == "deleting" and self.asked_life == self.machine.life:
            return
        self.state, self.asked_life = "deleting", self.machine.life
        subject = f"$JS.API.CONSUMER.DELETE.{STREAM}.{self.name}"
        self.machine.request(subject, b"", self.was_deleted)

    def was_deleted(self, _: bytes, payload: bytes) -> None:
        """The answer."""
        error = json.loads(payload).get("error")
        if error is not None and error["err_code"] != NOT_FOUND:
            self.asked_life = 0
            self.story.refused(f"{self.name} is not deleted", error)
        elif self.state == "deleting":
            self.world.note(f"{self.name} is deleted")
            self.book.deleted = True
            self.state = "none"

    def after_start(self) -> None:
        """What was confirmed before must be so after a start."""
        stream = self.machine.stream(STREAM)
        there = stream is not None and self.name in stream.consumers
        if self.state == "there":
            self.world.check(there, f"consumer {self.name} is gone")
        if self.state == "none" and self.book.deleted:
            self.world.check(not there, f"consumer {self.name} is there again")

    # -- messages -------------------------------------------------------------------------

    def fetch(self, batch: int) -> None:
        """Ask for some messages."""
        if self.pushed or self.state != "there" or self.machine.node is None:
            return
        self.machine.requests += 1
        inbox = f"_INBOX.fetch.{self.machine.requests}"
        self.machine.listen(inbox, self.got)
        body = b'{"batch":%d,"expires":%d}' % (batch, SECOND_NS // 2)
        self.machine.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{self.name}", body, inbox)

    def got(self, reply: bytes, headers: bytes, payload: bytes) -> None:
        """A message, or a status."""
        fields = reply.split(b".")
        if not reply.startswith(b"$JS.ACK."):
            return
        machine = self.machine
        stream = machine.stream(STREAM)
        if stream is None:
            return
        book, event = self.book, self.story.event()
        sequence = book.got(fields, payload, machine.life, event, stream.store)
        what = int(checksum(b"%s %d %s" % (self.name.encode(), sequence, fields[4]))) % 100
        if self.careful:
            what = 0
        if what < 60:
            self.answer(sequence, reply, "ack", b"+ACK", sync=True)
        elif what < 70:
            self.answer(sequence, reply, "ack", b"+ACK")
        elif what < 76:
            self.answer(sequence, reply, "nak", b"-NAK")
        elif what < 80:
            text = b'-NAK {"delay":%d}' % NAK_DELAY_NS
            self.answer(sequence, reply, "nak", text, delay_ns=NAK_DELAY_NS)
        elif what < 85:
            self.answer(sequence, reply, "term", b"+TERM", sync=True)
        elif what < 88:
            self.answer(sequence, reply, "wpi", b"+WPI")

    def answer(
        self,
        sequence: int,
        reply: bytes,
        how: str,
        body: bytes,
        delay_ns: int = 0,
        sync: bool = False,
    ) -> None:
        """Answer a delivery; `sync`: and wish to hear of it."""
        book, event, life = self.book, self.story.event(), self.machine.life
        book.answers(sequence, how, delay_ns, event)
        if not sync:
            self.machine.publish(reply.decode(), body)
            return

        def confirmed(_: bytes, __: bytes) -> None:
            self.world.note(f"{self.name}: {how} of {sequence} is confirmed")
            book.confirms(sequence)
            self.story.on_disk(answer_to=life, event=event)

        self.machine.request(reply.decode(), body, confirmed)
