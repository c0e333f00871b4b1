"""A leader whose device writes nothing, while the devices of the others do."""

import json

from tests.sim.held.members import Member
from tests.sim.held.story import Story
from tests.sim.held.test_late_deliveries import members_of

STALL_SECONDS = 20.0


def publish(story: Story, answers: list[bytes]) -> None:
    """Publish a message on a node that does not lead; `answers` gets the payload of the answer."""
    _, (one, _) = members_of(story)
    one.request("s.a", b"x", lambda _, payload: answers.append(payload))


def test_another_node_leads_when_a_device_stalls(story: Story) -> None:
    """Who publishes waits two seconds or three, and not for the device."""
    leader, others = members_of(story)
    leader.set_write_delay(STALL_SECONDS)
    publish(story, [])
    assert story.world.wait(lambda: any(member.leads("S") for member in others), 3)
    answers: list[bytes] = []
    publish(story, answers)
    assert story.world.wait(lambda: bool(answers), 2)
    assert b'"seq"' in answers[0]


def test_a_leader_stays_when_nothing_is_written(story: Story) -> None:
    """Its device is as slow, and nobody waits for it."""
    leader, _ = members_of(story)
    leader.set_write_delay(STALL_SECONDS)
    story.world.sleep(5)
    assert leader.leads("S")


def leads_metadata(member: Member) -> bool:
    """Whether a node decides where streams go."""
    cluster = member.cluster
    return cluster is not None and cluster.cluster is not None and cluster.cluster.group.leads


def ask_for(story: Story, member: Member, name: str) -> list[bytes]:
    """Ask a node for a stream; the list gets the answer."""
    body = json.dumps({"name": name, "subjects": [name], "num_replicas": 3}).encode()
    heard: list[bytes] = []
    member.request(f"$JS.API.STREAM.CREATE.{name}", body, lambda _, said: heard.append(said))
    return heard


def test_another_node_leads_the_metadata_when_a_device_stalls(story: Story) -> None:
    """Nobody could make a stream otherwise, though the others have all on disk."""
    (leader,) = [member for member in story.members if leads_metadata(member)]
    others = [member for member in story.members if member is not leader]
    leader.set_write_delay(STALL_SECONDS)
    ask_for(story, others[0], "ONE")
    assert story.world.wait(lambda: any(leads_metadata(member) for member in others), 4)
    heard = ask_for(story, others[1], "TWO")
    assert story.world.wait(lambda: bool(heard), 4)
    assert b'"error"' not in heard[0]
