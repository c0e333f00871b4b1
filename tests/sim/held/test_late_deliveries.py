"""Deliveries of a leader that was replaced, which a line kept until another node led."""

import pytest

from headwater.hub.streams import late_deliveries
from tests.sim.held.members import Member
from tests.sim.held.story import Story


def members_of(story: Story) -> tuple[Member, list[Member]]:
    """The leader of the stream, and the others."""
    leader = story._leader()
    assert leader is not None
    return leader, [member for member in story.members if member is not leader]


def pull(member: Member, inbox: str, heard: list[bytes]) -> None:
    """Ask for a message as a client of a node; `heard` gets the reply subjects of what comes."""
    member.listen(inbox, lambda reply, headers, payload: heard.append(reply))
    body = b'{"batch":1,"expires":20000000000}'
    member.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, inbox)


def another_leads(story: Story, old: Member) -> Member:
    """Wait until another node leads, and return it."""
    world = story.world
    others = [member for member in story.members if member is not old]
    assert world.wait(lambda: any(member.leads("S") for member in others), 10)
    return next(member for member in others if member.leads("S"))


def test_what_nobody_wrote_down_is_not_delivered_late(story: Story) -> None:
    """The next leader hands it out itself, and it is acknowledged before the late one comes."""
    leader, (one, other) = members_of(story)
    story.mesh.mute(leader.name)
    late: list[bytes] = []
    pull(one, "_INBOX.late", late)
    story.world.sleep(0.05)
    another_leads(story, leader)
    again: list[bytes] = []
    pull(other, "_INBOX.again", again)
    assert story.world.wait(lambda: bool(again), 5)
    assert again[0].startswith(b"$JS.ACK.S.C.1.1.1.")
    answers: list[bytes] = []
    other.request(again[0].decode(), b"+ACK", lambda headers, _: answers.append(headers))
    assert story.world.wait(lambda: answers == [b""], 5)
    story.mesh.unmute(leader.name)
    story.world.sleep(3)
    assert not [reply for reply in late if reply.startswith(b"$JS.ACK.S.C.1.1.")]


def test_what_was_written_down_is_delivered_however_late(story: Story) -> None:
    """To the next leader it is on its way to a client; nobody else gets it before its ack wait."""
    leader, (one, _) = members_of(story)
    story.mesh.mute(leader.name, one.name)
    late: list[bytes] = []
    pull(one, "_INBOX.late", late)
    story.world.sleep(0.2)
    story.mesh.mute(leader.name)
    another_leads(story, leader)
    story.world.sleep(0.2)
    assert not late
    story.mesh.unmute(leader.name)
    assert story.world.wait(lambda: bool(late), 2)
    assert late[0].startswith(b"$JS.ACK.S.C.1.1.1.")


@pytest.mark.parametrize("story", range(2, 8), indirect=True)
def test_a_new_leader_that_is_away_is_asked_again(story: Story) -> None:
    """A message that may be delivered once would be lost otherwise. Its node may be asked before
    it has heard again who listens."""
    leader, (one, other) = members_of(story)
    story.mesh.mute(leader.name, one.name)
    late: list[bytes] = []
    pull(one, "_INBOX.late", late)
    story.world.sleep(0.2)
    story.mesh.mute(leader.name)
    new = another_leads(story, leader)
    story.world.sleep(0.2)
    assert new is not one, "the client's own node needs no other"
    story.mesh.part(one.name, new.name, silently=False)
    story.mesh.unmute(leader.name)
    story.world.sleep(1)
    assert not late
    story.mesh.join(one.name, new.name)
    assert story.world.wait(lambda: bool(late), 10)
    assert late[0].startswith(b"$JS.ACK.S.C.1.1.1.")
    story.world.sleep(2)
    assert sum(reply.startswith(b"$JS.ACK.S.C.1.1.1.") for reply in late) == 1


def keep_one_back(story: Story) -> None:
    """A message that was written down comes late to a node which cannot ask who leads."""
    leader, (one, _) = members_of(story)
    story.mesh.mute(leader.name, one.name)
    pull(one, "_INBOX.late", [])
    story.world.sleep(0.2)
    story.mesh.mute(leader.name)
    new = another_leads(story, leader)
    story.world.sleep(0.2)
    story.mesh.part(one.name, new.name, silently=False)
    story.mesh.unmute(leader.name)


def test_what_nobody_answers_for_is_logged_when_it_is_dropped(
    story: Story, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that may deliver once has lost it."""
    monkeypatch.setattr(late_deliveries, "ASKED_SECONDS", 3.0)
    keep_one_back(story)
    story.world.sleep(2)
    assert "not delivered" not in caplog.text
    story.world.sleep(4)
    assert "S': 1 messages that came late are not delivered" in caplog.text
    assert late_deliveries.UNANSWERED in caplog.text


def test_what_is_too_much_to_ask_about_is_logged(
    story: Story, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is dropped at once."""
    monkeypatch.setattr(late_deliveries, "ASKED_MAX", 0)
    keep_one_back(story)
    story.world.sleep(3)
    assert "S': 1 messages that came late are not delivered" in caplog.text
    assert late_deliveries.TOO_MANY in caplog.text
