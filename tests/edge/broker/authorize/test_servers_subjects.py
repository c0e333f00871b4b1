"""Subjects that servers use among themselves: who may publish on them, and ask for answers there,
as nats-server has it."""

from bench.servers import Server
from headwater.security.claims import SubjectPermission
from tests.operator_realm import SERVERS, Raw, Realm, recipe

SUBJECTS = (
    "$NRG.x",
    "$NRG.P.x",
    "$NRG",
    "$NRGx.y",
    "$GR.x",
    "$GR",
    "$GNR.x",
    "_GR_.x",
    "_GR_",
    "_GR_.a.b.$JS.API.INFO",
    "$LDS.x",
    "_R_.x",
    "$JS.ACK.x",
    "_INBOX.x",
    "$SYS.x",
)


def decided(server: Server, realm: Realm) -> dict[str, list[str]]:
    found = {}
    for account in "AS":
        for restricted in (False, True):
            rule = SubjectPermission(deny=["nothing"] if restricted else [])
            with Raw(server.port) as wire:
                user = realm.user(account, pub=rule)
                assert wire.login(user) == []
                for subject in SUBJECTS:
                    put = wire.send(f"SUB {subject} 1\r\nPUB {subject} 0\r\n\r\nUNSUB 1\r\n")
                    asked = wire.send(f"PUB a {subject} 0\r\n\r\n")
                    found[f"{account} {restricted} {subject}"] = [*put, *asked]
    return found


def test_the_same_decisions() -> None:
    realm = Realm()
    realm.body.system_account = realm.account("S")
    verdicts = []
    for name in SERVERS:
        with Server(recipe(name, realm.config())) as server:
            verdicts.append(decided(server, realm))
    assert verdicts[0] == verdicts[1]
    assert any("Violation" in line for line in verdicts[0]["A False $NRG.x"])
    assert any("Violation" in line for line in verdicts[0]["A True _GR_.x"])
