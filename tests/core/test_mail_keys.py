"""Try every door to a mailbox without the token that opens it (design section 7, Addresses; FE 1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intercom.core.connections import PeerCredentials
from intercom.limits import Limits
from tests.core.harness import INFO, World, only
from tests.core.mail import AGENT, PEER, Agent, enter, holder, operator, reattach

STRANGER = PeerCredentials(pid=99, uid=1000, gid=1000, started=8)
BOX = {"name": "box", "hold": "take"}


class House:
    """Hold one session and one address, both away with mail, and what a stranger may know of them."""

    def __init__(self) -> None:
        self.world = World()
        self.owner = enter(self.world, "b", returnAddress="secret")
        self.boxed = holder(self.world, "box")
        self.addressed = self.boxed.registered["addressToken"]
        self.owner.leave()
        self.boxed.leave()
        sender = enter(self.world, "a", features=("queue",))
        for target, message_id in ((self.owner.id, "m1"), ("box", "m2")):
            assert sender.queue(target, message_id)[-1]["type"] == "queued"
        sender.write("unregister")
        sender.leave()

    def register(
        self, *, peer: PeerCredentials = STRANGER, info: dict[str, Any] | None = None, **members: Any
    ) -> Agent:
        conn = self.world.connect(peer)
        request = {
            "acknowledgesReceipt": True,
            "features": list(AGENT),
            "clientProtocolVersion": "1.0",
            "kind": "custom",
        }
        answers = self.world.send(conn, type="register", session={**INFO, **(info or {})}, **request, **members)
        return Agent(self.world, conn, answers[0].get("sessionId", ""), answers)

    def older(self, **members: Any) -> Agent:
        conn = self.world.connect(STRANGER)
        answers = self.world.send(conn, type="register", session={**INFO, "name": "b"}, **members)
        return Agent(self.world, conn, answers[0].get("sessionId", ""), answers)


Try = Callable[[House], Agent]
TRIES: dict[str, Try] = {
    "the name": lambda house: house.register(info={"name": "b"}),
    "the name of the address": lambda house: house.register(info={"name": "box"}),
    "the id": lambda house: house.register(preferredSessionId=house.owner.id),
    "the id of the holder": lambda house: house.register(preferredSessionId=house.boxed.id),
    "the return address": lambda house: house.register(returnAddress="secret"),
    "id, name and return address": lambda house: house.register(
        info={"name": "b"}, preferredSessionId=house.owner.id, returnAddress="secret"
    ),
    "all that in capitals": lambda house: house.register(
        info={"name": "B"}, preferredSessionId=house.owner.id.upper(), returnAddress="secret"
    ),
    "all that and a wrong token": lambda house: house.register(
        info={"name": "b"}, preferredSessionId=house.owner.id, returnAddress="secret", ownerToken="0" * 64
    ),
    "the id and the token of another session": lambda house: house.register(
        preferredSessionId=house.owner.id, ownerToken=house.boxed.token
    ),
    "the token of the address instead of the owner's": lambda house: house.register(
        preferredSessionId=house.owner.id, ownerToken=house.addressed
    ),
    "the owner's token without the id": lambda house: house.register(ownerToken=house.owner.token),
    "an older client with id and return address": lambda house: house.older(
        preferredSessionId=house.owner.id, returnAddress="secret", acknowledgesReceipt=True
    ),
    "an older client that claims the address": lambda house: house.older(address=BOX, ownerToken=house.owner.token),
    "the address without a token": lambda house: house.register(address=BOX),
    "the address with a wrong token": lambda house: house.register(address={**BOX, "token": "0" * 64}),
    "the address with the owner token of its holder": lambda house: house.register(
        address={**BOX, "token": house.boxed.token}
    ),
    "the address in capitals": lambda house: house.register(address={**BOX, "name": " BOX "}),
    "the address, if nobody holds it": lambda house: house.register(address={**BOX, "hold": "free"}),
    "to act under the address": lambda house: house.register(address={**BOX, "hold": "none"}),
    "the address of that name in another group": lambda house: house.register(address=BOX, registrationGroup="far"),
    "to act under the address with its token": lambda house: house.register(
        address={**BOX, "hold": "none", "token": house.addressed}
    ),
    "a session's key as the name of an address": lambda house: house.register(
        address={**BOX, "name": f"session:{house.owner.id}"}
    ),
    "a reattach without a token": lambda house: reattach(house.world, house.owner, ownerToken=""),
    "a reattach with the return address": lambda house: reattach(house.world, house.owner, ownerToken="secret"),
    "a reattach with the token of another session": lambda house: reattach(
        house.world, house.owner, ownerToken=house.boxed.token
    ),
    "a reattach with the token of the address": lambda house: reattach(
        house.world, house.boxed, ownerToken=house.addressed
    ),
    "a reattach from another process": lambda house: reattach(house.world, house.owner, peer=STRANGER),
}


@pytest.mark.parametrize("has_restarted", [False, True], ids=["before a restart", "after a restart"])
@pytest.mark.parametrize("what", TRIES)
def test_nobody_opens_a_mailbox_without_its_token(what: str, has_restarted: bool) -> None:
    house = House()
    world = house.world
    if has_restarted:
        world.crash()
    stranger = TRIES[what](house)
    seen = [*stranger.first, *stranger.got()]
    assert {frame["type"] for frame in seen} <= {"registered", "registration_failed", "request_failed"}, seen
    if stranger.conn in world.open and stranger.id and seen[0]["type"] == "registered":
        assert stranger.id not in (house.owner.id, house.boxed.id)
        assert seen[0].get("mailboxCount", 0) == 0
        for message_id in ("m1", "m2"):
            stranger.write("received", messageId=message_id)
        if "features" in seen[0]:
            for of in ({"sessionId": house.owner.id}, {"address": "box", "group": "default"}):
                answer = only(stranger.write("mailbox", requestId="r", of=of))
                may_look = "address" in of and what == "to act under the address with its token"
                assert answer["type"] == ("mailbox" if may_look else "request_failed"), answer
        stranger.leave()
    assert [row.message_id for row in world.disk.mail.values()] == ["m1", "m2"]
    back = reattach(world, house.owner)
    assert [frame["message"]["id"] for frame in back.first if frame["type"] == "message"] == ["m1"]
    again = reattach(world, house.boxed)
    assert [frame["message"]["id"] for frame in again.first if frame["type"] == "message"] == ["m2"]


def test_nobody_takes_the_id_of_a_closed_session_with_the_return_address_of_another() -> None:
    """Protocol 6.1; what was for the closed session is told to its sender, not handed to who has its id now."""
    world = World(limits=Limits(inbox_entries=0))
    owner, sender = enter(world, "b", returnAddress="secret"), enter(world, "a")
    sender.queue("b", "m1")
    owner.write("unregister")
    owner.leave()
    assert only(sender.mail())["notice"]["messageId"] == "m1"
    thief = enter(world, "b", peer=STRANGER, preferredSessionId=owner.id, returnAddress="other")
    assert thief.id != owner.id
    same = enter(world, "b", peer=STRANGER, preferredSessionId=owner.id, returnAddress="secret")
    assert same.id == owner.id
    assert [frame["type"] for frame in same.first] == ["registered"]


def test_an_unconfirmed_message_goes_to_nobody_with_the_same_return_address() -> None:
    """A second live session with the same return address has an identity of its own (design section 7, Receipts)."""
    world = World()
    owner, sender = enter(world, "b", returnAddress="secret"), world.register("a", returnAddress="r")
    sender.message("b", "m1")
    assert [frame["message"]["id"] for frame in owner.mail()] == ["m1"]
    owner.leave()
    first = enter(world, "c", peer=STRANGER, returnAddress="secret")
    second = enter(world, "d", peer=STRANGER, returnAddress="secret", preferredSessionId=owner.id)
    assert [frame["type"] for frame in (*first.first, *second.first) if frame["type"] == "message"] == []
    assert PEER.pid != STRANGER.pid


def test_the_operator_looks_and_does_not_take() -> None:
    house = House()
    person = operator(house.world)
    entries = only(person.write("mailbox", requestId="r", of={"address": "box"}))["entries"]
    assert [entry["messageId"] for entry in entries] == ["m2"]
    person.write("received", messageId="m2")
    assert [row.message_id for row in house.world.disk.mail.values()] == ["m1", "m2"]
