"""Show a message that came: as a document for programs, as lines for people."""

from __future__ import annotations

import time
from argparse import Namespace
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from intercom.cli.identity import GUEST
from intercom.cli.render import duration, visible, visible_block, who
from intercom.client.profile import PERSON
from intercom.client.texts import said_beside, wishes
from intercom.limits import OLD_MAIL_MS

if TYPE_CHECKING:
    from intercom.client.views import IncomingMessage, Invoked


THE_PERSON = f"{PERSON} (the person)"


def described(message: IncomingMessage) -> dict[str, Any]:
    """Return a message as a JSON object."""
    document: dict[str, Any] = {
        "id": message.id,
        "from": dict(message.sender.raw),
        "text": message.text,
        "timestamp": message.timestamp,
        "expectsReply": message.expects_reply,
    }
    if message.withdrawn:
        document["withdrawn"] = True
    if message.attachments:
        document["attachments"] = [dict(attachment) for attachment in message.raw["content"]["attachments"]]
    if message.is_notification:
        document["notification"] = True
    if message.mail is not None:
        mail = message.mail
        document["mail"] = {"queuedAt": mail.queued_at, "ageMs": mail.age_ms, "offers": mail.offers}
        if mail.sends > 1:
            document["mail"] |= {"sends": mail.sends, "lastQueuedAt": mail.last_queued_at}
    if message.valid_until is not None:
        document["validUntil"] = message.valid_until
    if message.notice is not None:
        notice = message.notice
        document["notice"] = {
            "kind": notice.kind,
            "messageId": notice.message_id,
            "target": notice.target,
            "reason": notice.reason,
        }
    if message.flow is not None:
        step = message.flow
        document["flow"] = {
            "flowId": step.flow_id,
            "stepId": step.step_id,
            "dispatchId": step.dispatch_id,
            "attempt": step.attempt,
            "instruction": step.instruction,
        }
    if message.invoked is not None:
        document["invocation"] = _described_task(message.invoked)
    optional = {"replyTo": message.reply_to, "replyError": message.reply_error, "channel": message.channel}
    return document | {member: value for member, value in optional.items() if value is not None}


def _described_task(task: Invoked) -> dict[str, Any]:
    wished = {} if task.execution is None else wishes(task.execution)
    optional = {
        "cancelled": task.is_cancelled or None,
        "execution": wished or None,
        "labels": list(task.labels) or None,
        "metadata": task.metadata,
        "stream": task.stream or None,
        "messageId": task.about,
    }
    known = {member: value for member, value in optional.items() if value is not None}
    return {"invocationId": task.id, "runId": task.run_id, "action": task.action, **known}


def shown(message: IncomingMessage, options: str | None = "") -> str:
    """Return a message as lines for a person: when, who, how old, and what; nothing in it can look like ours.

    ``options`` are those that make a command act as this one does, as ``same_identity`` returns them; ``None`` where
    no command is to report a step or a task.
    """
    head = f"{clock()} {_sender(message)} {_verb(message)}"
    if message.notice is not None:
        notice = message.notice
        return f"{head}: message {visible(notice.message_id)} to {visible(notice.target)}: {visible(notice.reason)}"
    lines = [f"{head}{_waited(message)}:", indented(message.text)]
    for attachment in message.attachments:
        lines += [f"  --- {visible(attachment.name)}", indented(attachment.content)]
    if message.flow is not None:
        step = message.flow
        named = visible(step.dispatch_id)
        lines.append(f"  step {visible(step.step_id)} of flow {visible(step.flow_id)}")
        if options is not None:
            lines.append("  when it is done:")
            lines.append(f"    intercom flow report{options} {named} completed --summary TEXT")
            lines.append("  when it cannot be done:")
            lines.append(f"    intercom flow report{options} {named} failed --summary TEXT")
    if message.invoked is not None:
        lines += _task(message.invoked, options)
    return "\n".join(lines)


def how_to_answer(message: IncomingMessage, options: str) -> str | None:
    """Return the command that answers a message; ``None`` where there is nobody to answer, or ``shown`` has told.

    ``options`` are those that make a command act as this one does, as ``same_identity`` returns them.
    """
    if message.notice is not None or message.reply_error is not None or message.invoked is not None:
        return None
    if message.expects_reply and not message.withdrawn:
        return f"intercom reply{options} {_word(message.id)} TEXT"
    if is_from_a_guest(message):
        return None
    named = PERSON if message.sender.is_person else message.sender.name or message.sender.id
    return f"intercom send{options.removesuffix(' --me')} {_word(named)} TEXT"


def how_to_report(invocation_id: str, options: str, state: str) -> str:
    """Return the command that tells what became of a task; ``options`` as for ``how_to_answer``."""
    return f"intercom invocation report{options} {_word(invocation_id)} {state} TEXT"


def is_from_a_guest(message: IncomingMessage) -> bool:
    """Tell whether a command without an identity sent a message: it has ended, and no reply reaches it."""
    sender = message.sender
    return sender.name is None and sender.status == GUEST and sender.model.startswith("intercom ")


def same_identity(arguments: Namespace) -> str:
    """Return the options with which another command acts under the same address, with a space before each."""
    given = [("--as", arguments.name), *(("--group", group) for group in arguments.groups or ())]
    given.append(("--home", arguments.home))
    options = "".join(f" {option} {quote(value)}" for option, value in given if value is not None)
    return f"{options} --me" if arguments.me else options


def indented(text: str) -> str:
    """Return a body so that no line of it can look like one of ours."""
    return "\n".join("    " + line for line in visible_block(text).split("\n"))


def clock() -> str:
    """Return the time of day."""
    return time.strftime("%H:%M:%S")


def _sender(message: IncomingMessage) -> str:
    if message.notice is not None:
        return "intercom"
    return THE_PERSON if message.sender.is_person else who(message.sender.name, message.sender.id)


def _verb(message: IncomingMessage) -> str:
    if message.notice is not None:
        return f"says {message.notice.kind}"
    if message.reply_error is not None:
        return "cannot answer"
    if message.is_notification:
        return "reports"
    if message.expects_reply:
        return "asked, and waits for no answer any more" if message.withdrawn else "asks"
    if message.invoked is not None:
        return "takes back a task" if message.invoked.is_cancelled else "has a task"
    if is_from_a_guest(message):
        return "says, as a guest whom no reply reaches"
    return "replies" if message.reply_to is not None else "says"


def _task(task: Invoked, options: str | None) -> list[str]:
    ends: tuple[tuple[str, str], ...] = (("when it is done:", "completed"), ("when it cannot be done:", "failed"))
    if task.is_cancelled:
        lines = [f"  invocation {visible(task.id)} is not wanted any more"]
        ends = (("when you have stopped:", "cancelled"),)
    else:
        beside = said_beside(task)
        lines = [f"  task of invocation {visible(task.id)} ({task.action})" + (f", with {beside}" if beside else "")]
        lines += [f"  metadata: {visible(encode(task.metadata).decode())}"] if task.metadata else []
    if options is not None:
        for when, state in ends:
            lines += [f"  {when}", f"    {how_to_report(task.id, options, state)}"]
    return lines


def _waited(message: IncomingMessage) -> str:
    """Return what a reader has to know of a message that waited: how old, out of date, perhaps shown before."""
    mail = message.mail
    told = [f"{duration(mail.age_ms)} ago"] if mail is not None and mail.age_ms >= OLD_MAIL_MS else []
    if mail is not None and mail.sends > 1:
        told.append(f"written {mail.sends} times, word for word")
    if message.is_out_of_date:
        told.append(f"out of date since {duration(message.out_of_date_ms)}")
    if mail is not None and mail.offers > 1:
        told.append(f"handed over for the {_ordinal(mail.offers)} time")
    return f" ({', '.join(told)})" if told else ""


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if 10 <= number % 100 <= 20 else endings.get(number % 10, "th")
    return f"{number}{ending}"


def _word(text: str) -> str:
    """Return a peer's text as one word of a command line that is never taken for an option."""
    word = quote(visible(text))
    return f"-- {word}" if word.startswith("-") else word
