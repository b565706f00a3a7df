from __future__ import annotations

from argparse import Namespace

import pytest
from msgspec.structs import replace

from intercom.cli.messages import described, how_to_answer, same_identity, shown
from intercom.client.flowsteps import FlowStep
from intercom.client.views import IncomingMessage, Mail, Notice, SessionView
from intercom.wire.flows import FlowDispatch

SENDER = SessionView(
    id="b1111111-1111-4111-8111-111111111111",
    name=None,
    cwd="/p",
    model="m",
    pid=1,
    peer_pid=1,
    status=None,
    group="g",
    groups=("g",),
    started_at=0,
    last_activity=0,
    raw={},
)


def test_only_old_mail_has_an_age() -> None:
    """Design section 7, Freshness: from 5 minutes on."""
    for age_ms, told in ((299_999, ""), (300_000, " (5 min 0 s ago)")):
        message = IncomingMessage(id="m", text="hi", sender=SENDER, mail=Mail(1, 0, age_ms, 1))
        assert shown(message).splitlines()[0][9:] == f"b1111111 says{told}:"
    again = IncomingMessage(id="m", text="hi", sender=SENDER, mail=Mail(1, 0, 300_000, 3))
    assert "(5 min 0 s ago, handed over for the 3rd time):" in shown(again)


def test_what_is_out_of_date_is_shown_as_that() -> None:
    """F87, protocol 9.5.5."""
    message = IncomingMessage(id="m", text="hi", sender=SENDER, valid_until=1)
    assert "b1111111 says (out of date since " in shown(message)
    assert described(message)["validUntil"] == 1
    fresh = IncomingMessage(id="m", text="hi", sender=SENDER, valid_until=2**53)
    assert "out of date" not in shown(fresh)


def test_a_notice_says_what_it_is_about() -> None:
    notice = Notice("expired", "m\x1b1", "worker", "it was too late")
    message = IncomingMessage(id="n", text="", sender=SENDER, notice=notice)
    assert shown(message)[9:] == "intercom says expired: message m\\x1b1 to worker: it was too late"
    assert how_to_answer(message, "") is None


@pytest.mark.parametrize(
    ("members", "command"),
    [
        ({"id": "m 1", "expects_reply": True}, "intercom reply --as a 'm 1' TEXT"),
        ({"id": "--home=x", "expects_reply": True}, "intercom reply --as a -- --home=x TEXT"),
        ({"id": "m", "reply_to": "q"}, f"intercom send --as a {SENDER.id} TEXT"),
        ({"id": "m", "reply_error": "no"}, None),
    ],
)
def test_the_command_that_answers_is_safe_to_paste(members: dict[str, object], command: str | None) -> None:
    message = IncomingMessage(text="hi", sender=SENDER, **members)  # type: ignore[arg-type]
    assert how_to_answer(message, " --as a") == command


def test_nobody_answers_a_guest() -> None:
    """F55: a command without an identity has ended, and nobody can be reached under the id it had"""
    guest = replace(SENDER, status="guest", model="intercom send")
    message = IncomingMessage(id="m", text="hi", sender=guest)
    assert how_to_answer(message, "") is None
    assert shown(message).splitlines()[0].endswith(" says, as a guest whom no reply reaches:")
    asks = IncomingMessage(id="m", text="hi", sender=guest, expects_reply=True)
    assert how_to_answer(asks, "") == "intercom reply m TEXT", "it waits for the answer"
    named = IncomingMessage(id="m", text="hi", sender=replace(SENDER, status="guest"))
    assert how_to_answer(named, "") is not None


def test_nobody_answers_what_was_taken_back() -> None:
    """Protocol 5.42"""
    message = IncomingMessage(id="m", text="hi", sender=SENDER, expects_reply=True)
    message.withdrawn = True
    assert "asked, and waits for no answer any more:" in shown(message)
    assert (how_to_answer(message, "") or "").startswith("intercom send ")
    assert described(message)["withdrawn"] is True


def test_the_command_that_answers_acts_as_this_one() -> None:
    plain = Namespace(name=None, groups=None, home=None, me=False)
    assert same_identity(plain) == ""
    full = Namespace(name="a b", groups=["g", "h"], home="/x", me=True)
    assert same_identity(full) == " --as 'a b' --group g --group h --home /x --me"
    message = IncomingMessage(id="m", text="hi", sender=SENDER)
    assert how_to_answer(message, " --me") == f"intercom send {SENDER.id} TEXT", "the person sends as anybody does"


def test_the_document_of_mail_and_of_a_notice() -> None:
    plain = described(IncomingMessage(id="m", text="hi", sender=SENDER))
    assert {"mail", "notice"} & set(plain) == set()
    mail = described(IncomingMessage(id="m", text="hi", sender=SENDER, mail=Mail(4, 1, 2, 3)))
    assert mail["mail"] == {"queuedAt": 1, "ageMs": 2, "offers": 3}
    notice = Notice("undeliverable", "m", "t", "r")
    told = described(IncomingMessage(id="n", text="hi", sender=SENDER, notice=notice))
    assert told["notice"] == {"kind": "undeliverable", "messageId": "m", "target": "t", "reason": "r"}


def test_a_step_of_a_flow_says_how_to_report_it() -> None:
    """Protocol 12.3: what tells whoever does the step how to report it is in the document, and the commands below."""
    message = IncomingMessage(id="flow-dispatch:d 1", text="do it", sender=SENDER)
    message.flow = FlowStep(FlowDispatch("f\x1b", "s", "d 1", 2, "report it", {}))
    step = {"flowId": "f\x1b", "stepId": "s", "dispatchId": "d 1", "attempt": 2, "instruction": "report it"}
    assert described(message)["flow"] == step
    lines = shown(message, " --as a").splitlines()
    assert lines[1:3] == ["    do it", "  step s of flow f\\x1b"]
    commands = [line.strip() for line in lines if line.lstrip().startswith("intercom ")]
    assert commands == [f"intercom flow report --as a d 1 {end} --summary TEXT" for end in ("completed", "failed")]
    assert "report" not in shown(message, None)


def test_a_notification_is_a_report_and_not_an_answer() -> None:
    message = IncomingMessage(id="m", text="hi", sender=SENDER, reply_to="q", is_notification=True)
    assert described(message)["notification"] is True
    assert shown(message).splitlines()[0].endswith(" reports:")


def test_mail_written_again_is_one_message() -> None:
    """Protocol 15.3: the same text to the same reader is kept once, and says how often it was written."""
    mail = Mail(4, 1, 2, 1, sends=3, last_queued_at=9)
    message = IncomingMessage(id="m", text="hi", sender=SENDER, mail=mail)
    assert described(message)["mail"] == {"queuedAt": 1, "ageMs": 2, "offers": 1, "sends": 3, "lastQueuedAt": 9}
    assert " (written 3 times, word for word):" in shown(message).splitlines()[0]
