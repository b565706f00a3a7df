"""Say to a model what came of a call: short, and with advice that it can follow with the tools it has."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence

from intercom.client.choosing import TASK_PREFIX
from intercom.client.flowsteps import FlowStep
from intercom.client.invoking import InvocationView
from intercom.client.mailviews import AddressView, PendingAsk
from intercom.client.peertext import short
from intercom.client.texts import clipped, duration, short_ids, visible, who
from intercom.client.views import Receipt, SessionView
from intercom.errors import AskError, IntercomError, SendError
from intercom.limits import CELL_COLUMNS, PUSH_WAY_CHARACTERS, TOOL_LIST_ENTRIES
from intercom.mcp.asking import OpenQuestion

PUSHES = {
    "now": "sees messages at once",
    "idle": "sees messages when idle",
    "pull": "sees messages when it looks",
    "none": "cannot be told of messages",
}
"""What each way to reach a host means to who sends."""

KEPT = {
    "quiet": "; it is not to be disturbed, and reads it when it looks",
    "hold": "; the user decides first whether it gets it",
}
"""Why a message waits that its recipient could have."""

_HINTS = {
    "not_found": "Call list: it shows who can be reached. Names are exact, ids may be shortened.",
    "ambiguous": "Call list and use an id.",
    "away": "Nothing was asked. Use send instead: the message waits until the other side is back.",
    "undisturbed": "It takes no questions now. Use send: the message waits in its mailbox.",
    "refused_by_policy": "The other side takes no messages from you. Tell your user if that matters.",
    "loop": "Stop answering each other. If it matters, tell your user: send to @me.",
    "would_deadlock": "They wait for you: call pending and answer first.",
    "too_large": "Write it to a file and send its path.",
    "conflict": "Send it as a new message.",
    "outcome_unknown": "It may have arrived. Do not send it again; ask whether it did, if that matters.",
    "denied": "Tell your user: this process may not use the intercom socket, perhaps because of a sandbox.",
    "no_broker": "Try again in a few seconds.",
    "busy": "Try again in a few seconds.",
    "starting": "Try again in a few seconds.",
    "start_failed": "Tell your user to run `intercom doctor`.",
    "home": "Tell your user; nothing you can do here helps.",
    "replaced": "It gets your messages, and questions you asked here get no answer. Tell your user: only one of the "
    "two can use intercom. Once the other one has ended, your tools work again.",
    "force_closed": "Your user closed this session of intercom. Do not use intercom unless your user says so.",
    "unknown_question": "Call pending: it shows what is open. To tell somebody something use send.",
    "ambiguous_question": "Call pending and give the id as it stands there.",
    "unknown_message": "Give the id from the line above the message, or leave reply_to out.",
    "ambiguous_message": "Give more of the id, or leave reply_to out.",
    "no_open_question": "Nobody waits for it any more. If it still matters, use send.",
    "unknown_work": "Call pending: it shows what is yours. work takes a new piece.",
    "ambiguous_work": "Call pending, and give finish the id as it stands there as work.",
    "dispatch_unknown": "That step was not handed to you. Call pending: it shows what is yours.",
    "not_flow_target": "That step is not yours any more. Leave it.",
    "dispatch_closed": "That step is over. Do not report it again.",
    "report_conflict": "It was reported already, and that report stays. Do not report it again.",
    "binding_conflict": "Give todo the item that you reported first.",
    "run_terminal": "It was ended already, and that end stays. Do not report it again.",
    "invalid_update": "Say it shorter: write what is long to a file, and send its path.",
    "peer_gone": "The other side left without an answer. Call list to see whether it is back.",
    "expired": "Send a new message if it still matters.",
    "ask_timeout": "Nobody answered in time. Go on without the answer, or use send.",
    "capacity": "Wait a little, then send it again.",
}
"""What helps against each error, for who has these tools and no shell."""


def failure(error: IntercomError) -> str:
    """Return an error as text: its code, one sentence, and a hint that can be followed."""
    hint = _HINTS.get(error.code)
    if isinstance(error, SendError | AskError) and error.retry == "same_id":
        hint = "Call the tool again with the same arguments: it is the same message then, and cannot arrive twice."
    if hint is None:
        hint = "" if "`" in error.hint or "--" in error.hint else error.hint
    if not hint and error.retry == "after":
        hint = "Try again a little later."
    reason = visible(error.reason).rstrip(".")
    return f"error {error.code}: {reason}." + (f" {hint}" if hint else "")


def sent(receipt: Receipt, target: SessionView | None) -> str:
    """Return what became of a message."""
    name = clipped(visible(receipt.target))
    about = f" (message {short(receipt.message_id)})"
    if receipt.inferred_reply_to is not None:
        return f"delivered to {name} as the answer to its question {short(receipt.inferred_reply_to)}"
    if receipt.state == "delivered":
        return f"delivered to {name}{about}{_hint(receipt)}"
    where = f"queued for {name}, place {receipt.position}{about}: it waits on disk and was not read yet"
    if target is not None and (push := target.raw.get("push")) in PUSHES:
        where += f"; {name} {PUSHES[push]}"
    if receipt.kept is not None:
        where += KEPT[receipt.kept]
    if receipt.joined is not None:
        where += (
            f". You wrote the same as message {short(receipt.joined)}, which was not read yet either: the two are "
            "shown as one. Do not send it again"
        )
    return where + _hint(receipt)


def replied(receipt: Receipt, question: str, asker: str) -> str:
    """Return what became of an answer."""
    state = "has your answer" if receipt.state == "delivered" else "is away and will find your answer"
    return f"{clipped(visible(asker))} {state} to question {short(question)}"


def still_waiting(question: OpenQuestion) -> str:
    """Return what a model is told whose question has no answer yet."""
    return (
        f"still waiting: question {question.described()}. Go on with other work: the answer will be shown to you, or "
        "call receive (with wait_s to wait for it). Do not ask again."
    )


def owed(asks: Sequence[PendingAsk]) -> list[str]:
    """Return a line for each question that waits for an answer."""
    now = time.time() * 1000
    short_of = short_ids([ask.message_id for ask in asks])
    return [
        f"- {visible(short_of[ask.message_id])} from {who(ask.asker_name, ask.asker_id)}, "
        f"asked {duration(now - ask.asked_at)} ago, open for {duration(ask.deadline - now)} more"
        + ("" if ask.asker_is_here else " (asker is away)")
        for ask in asks
    ]


def waiting(number: int) -> str:
    """Return how many messages wait, as the beginning of a sentence."""
    return f"{number} message{' waits' if number == 1 else 's wait'}"


def step(brought: FlowStep | None) -> str:
    """Return a line for a step of a flow that is not reported."""
    assert brought is not None, "only what brought a step is held as one"
    return f"- {visible(brought.dispatch_id)}, step {visible(brought.step_id)} of flow {visible(brought.flow_id)}"


def task(view: InvocationView, *, is_taken_back: bool) -> str:
    """Return a line for a task that is not reported, by the beginning of the id of the message that brought it."""
    stop = ", not wanted any more: stop, then reply with stopped" if is_taken_back else ""
    about = f"{view.action}, invocation {clipped(shlex.quote(visible(view.id)))}"
    return f"- {TASK_PREFIX}{short(view.run_id)} ({about}), {view.state}{stop}"


def listed(views: Sequence[SessionView], own_id: str, addresses: Iterable[AddressView]) -> str:
    """Return who can be reached, one a line."""
    short_of = short_ids([view.id for view in views])
    others = [view for view in views if view.id != own_id]
    lines = [_line(view, short_of[view.id]) for view in others[:TOOL_LIST_ENTRIES]]
    head = f"{len(others)} session{'' if len(others) == 1 else 's'} can be reached:"
    if not others:
        head = "Nobody else is here."
    if len(others) > TOOL_LIST_ENTRIES:
        lines.append(f"- and {len(others) - TOOL_LIST_ENTRIES} more; give a group to see fewer")
    away = [address.name for address in addresses if address.holder is None and not _is_hidden(address.name)]
    if away:
        shown = ", ".join(clipped(visible(name), 40) for name in away[:TOOL_LIST_ENTRIES])
        lines.append(f"Away, a message waits for them: {shown}")
    return "\n".join([head, *lines])


def _line(view: SessionView, id_shown: str) -> str:
    parts = [
        f"- {clipped(visible(view.name or id_shown), 60)} (id {visible(id_shown)})",
        clipped(visible(view.status), 60) if view.status else "",
        clipped(visible(view.model), 40),
        clipped(visible(view.cwd), CELL_COLUMNS),
        ",".join(visible(group) for group in view.groups) if view.groups != ("default",) else "",
        "away" if view.state == "reconnecting" else _seen(view),
    ]
    return " | ".join(part for part in parts if part)


def _seen(view: SessionView) -> str:
    """Return how soon a session sees a message and, where it says so, by what; empty where it says nothing."""
    soon, way = PUSHES.get(str(view.raw.get("push")), ""), view.raw.get("pushWay")
    return f"{soon} ({clipped(visible(way), PUSH_WAY_CHARACTERS)})" if soon and isinstance(way, str) and way else soon


def _is_hidden(name: str) -> bool:
    """Tell whether an address is one that commands and hosts have without a name of their own."""
    return name.startswith(("host-", "terminal-", "guest-"))


def _hint(receipt: Receipt) -> str:
    return f". {visible(receipt.hint)}" if receipt.hint else ""
