"""Throw bytes at a real broker over its socket while two witnesses talk; frames come cut anywhere, and wires end.

The broker is a process of its own. When all strangers have gone it holds as many descriptors as before, its memory has
not grown beyond what it may keep, and it ends in order when it is asked to.
"""

from __future__ import annotations

import random
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from intercom.limits import HEADER_BYTES
from scripts.strain.processes import descriptors, resident_kib, until
from tests.fuzz.core import CUMULATED, KINDS, MAKERS
from tests.fuzz.mutations import encoded, mutated, spoilt_bytes
from tests.fuzz.shapes import ALL_FEATURES, GROUPS, NAMES, Known
from tests.fuzz.tally import Tally
from tests.support.brokers import BrokerProcess
from tests.support.raw import INFO, RawClient

FRAMES = 800
PORTIONS = (1, 3, 4, 5, 100, 65_536)
WITNESS_EVERY = 25
LONGEST_S = 60.0
"""What a message of the witnesses may take: the time is that of the clock, on a machine that may be busy."""
GROWN_KIB = 150_000
SLACK = 5
"""Descriptors that may be opened meanwhile and stay: of the reader's connection, and of this process."""
NEWEST = {"acknowledgesReceipt": True, "clientProtocolVersion": "1.0", "kind": "custom", "workMode": "resident"}


def play(number: int) -> Tally:
    """Start a broker, trouble it, and look what became of it."""
    chance, tally = random.Random(number), Tally()
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as place:
        broker = BrokerProcess(Path(place).resolve() / "home")
        try:
            _trouble(broker, chance, tally)
            assert broker.stop() == 0, broker.errors
        finally:
            broker.close()
        assert "Traceback" not in broker.errors, broker.errors
    return tally


class _Stranger:
    """Hold a connection that is written to in odd portions, and seldom read."""

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(broker.socket))
        self.socket.setblocking(False)
        if chance.random() < 0.8:
            session = {**INFO, "name": chance.choice(NAMES[:5]), "groups": list(GROUPS[:3])}
            more = {**NEWEST, "features": list(ALL_FEATURES)} if chance.random() < 0.7 else {}
            self.write(_framed(encoded({"type": "register", "session": session, **more})), chance)

    def write(self, data: bytes, chance: random.Random) -> None:
        """Write in portions; what a broker that reads no further does not take is cut off there."""
        longest = chance.choice(PORTIONS)
        if len(data) > 500 * longest:
            longest = PORTIONS[-1]
        with suppress(OSError):
            while data:
                data = data[self.socket.send(data[: chance.randint(1, longest)]) :]

    def read(self, known: Known) -> bool:
        """Read what is there; tell whether the connection is open."""
        try:
            return bool(self.socket.recv(1 << 18))
        except BlockingIOError:
            return True
        except OSError:
            return False


def _trouble(broker: BrokerProcess, chance: random.Random, tally: Tally) -> None:
    witnesses = [broker.registered(name, acknowledgesReceipt=True) for name in ("wit-a", "wit-b")]
    held, memory = descriptors(broker.pid), resident_kib(broker.pid)
    known, strangers = Known(), [_Stranger(broker, chance) for _ in range(6)]
    known.values["sessionId"].extend(witness.session_id for witness in witnesses)
    for step in range(FRAMES):
        begun = time.monotonic()
        place = chance.randrange(len(strangers))
        stranger = strangers[place]
        if chance.random() < 0.02 or not (chance.random() < 0.5 or stranger.read(known)):
            stranger.socket.close()
            strangers[place] = _Stranger(broker, chance)
        else:
            stranger.write(_payload(chance, known), chance)
        if step % WITNESS_EVERY == 0:
            _talk(witnesses, f"witnessed-{step}")
        tally.count(time.monotonic() - begun, f"step {step}", LONGEST_S)
    for stranger in strangers:
        stranger.socket.close()
    _talk(witnesses, "last")
    assert until(lambda: descriptors(broker.pid) <= held + SLACK), "descriptors are left of who has gone"
    grown = resident_kib(broker.pid) - memory
    assert grown < GROWN_KIB, f"the broker grew by {grown} KiB"
    for witness in witnesses:
        witness.close()


def _payload(chance: random.Random, known: Known) -> bytes:
    frame: dict[str, Any] = MAKERS[chance.choices(KINDS, cum_weights=CUMULATED)[0]](chance, known)
    if frame["type"] == "register" and "session" in frame:
        frame["session"].pop("recipientPurpose", None)  # an operator may end a witness, rightly
    draw = chance.random()
    if draw < 0.35:
        frame = mutated(frame, chance, known)
    payload = encoded(frame)
    if draw > 0.9:
        payload = spoilt_bytes(payload, chance)
    data = _framed(payload)
    if draw > 0.98:
        data = chance.randbytes(8) + data
    return data


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


def _talk(witnesses: list[RawClient], text: str) -> None:
    """Let one witness write to the other, whatever others write to them meanwhile."""
    sender, target = witnesses
    sender.send_message(target.session_id, text, text)
    frame = target.receive()
    while frame.get("message", {}).get("id") != text:
        _confirm(target, frame)
        frame = target.receive()
    assert frame["message"]["content"]["text"] == text
    _confirm(target, frame)
    answer = sender.receive()
    while answer.get("messageId") != text:
        _confirm(sender, answer)
        answer = sender.receive()
    assert answer["type"] == "delivered", answer


def _confirm(client: RawClient, frame: dict[str, Any]) -> None:
    if frame["type"] == "message":
        client.send({"type": "received", "messageId": frame["message"]["id"]})
