"""Say what is let through to a session, and settle what is held for the person."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import opened, paths_of, time_left
from intercom.cli.person import require_person
from intercom.cli.render import Output, duration, visible, who
from intercom.cli.tables import Fit, show_table
from intercom.client.attending import PolicyAction, PolicyRule
from intercom.errors import RequestRefused, UsageError
from intercom.limits import REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.attending import KeptMessage, Policies, PolicyView
    from intercom.client.blocking import Session

USAGE = "list | set WHO RULE... | clear WHO | release ID | refuse ID"
DESCRIPTION = """Show and say what becomes of messages to a session.

    list          the policies in force, and the messages they keep
    set WHO RULE  what the person lets through to WHO (for the person)
    clear WHO     let everything through again, as far as the person is concerned (for the person)
    release ID    let a held message through (for the person)
    refuse ID     refuse a held message; its sender is told (for the person)

WHO is the name of an address or of a session, or a session id. A RULE is one of

    accept   hand the message over
    quiet    let it wait without waking anybody: it is read when its target looks for its mail
    hold     let it wait until the person lets it through
    refuse   refuse it

alone for all senders, or with `:from=NAME` for one of them, or with `:group=NAME` for those in a group. The first rule
that matches counts, and without one the message is handed over: `policy set reviewer accept:from=planner hold`.

Sessions set policies of their own too; where both say something, the stricter counts. Answers to questions always pass.
What the person sets stays when sessions and brokers end. Starts a broker when none runs.
"""
ACTIONS = get_args(PolicyAction)
HEAD = ("WHOSE", "SET BY", "RULES")
KEPT_HEAD = ("ID", "FROM", "TO", "WHY", "SINCE")


def configure(parser: Parser) -> None:
    """Add the options of ``policy``."""
    parser.add_argument(
        "words", nargs="*", metavar="WHAT", help="list, set WHO RULE..., clear WHO, release or refuse ID"
    )
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if what not in ("list", "set", "clear", "release", "refuse") or _is_wrong(what, rest):
        raise UsageError("say what to do", hint="`intercom policy list`, `set WHO RULE`, `clear WHO` or `release ID`.")
    rules = [rule_of(word) for word in rest[1:]] if what == "set" else []
    paths_of(arguments)  # first: a system without Unix sockets says so
    if what != "list":
        require_person("saying what is let through")
    with opened(arguments, "policy", purpose="control", default_ms=REQUEST_MS) as session:
        if what == "list":
            return _show(session.policies(timeout=time_left(arguments, REQUEST_MS)), output)
        if what in ("release", "refuse"):
            settle(session, rest[0], what, arguments, output)
            return 0
        target = named(session, rest[0], arguments)
        view = session.set_policy(rules, **target, timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "policy": described(view)})
    output.line(f"{visible(view.owner)}: {told(view.rules)}")
    return 0


def _is_wrong(what: str, rest: Sequence[str]) -> bool:
    least, most = {"list": (0, 0), "set": (2, 65)}.get(what, (1, 1))
    return not least <= len(rest) <= most


def rule_of(word: str) -> PolicyRule:
    """Return the rule a word stands for; raise ``UsageError`` for one that is none."""
    action, _, condition = word.partition(":")
    key, _, name = condition.partition("=")
    if action not in ACTIONS or (condition and (key not in ("from", "group") or not name)):
        raise UsageError(
            f"{clean(word)!r} is not a rule",
            hint="Say accept, quiet, hold or refuse, alone or with :from=NAME or :group=NAME.",
        )
    return PolicyRule(cast("PolicyAction", action), name if key == "from" else None, name if key == "group" else None)


def told(rules: Sequence[PolicyRule]) -> str:
    """Return rules in the words in which they are given."""
    return " ".join(visible(_word(rule)) for rule in rules) or "accept"


def _word(rule: PolicyRule) -> str:
    if rule.sender is not None:
        return f"{rule.action}:from={rule.sender}"
    return rule.action if rule.group is None else f"{rule.action}:group={rule.group}"


def named(session: Session, wanted: str, arguments: Namespace) -> dict[str, Any]:
    """Return whom a word means, as the arguments of ``set_policy``; raise ``RequestRefused`` for nobody or several."""
    plain = wanted.strip().lower()
    found: list[dict[str, Any]] = [
        {"address": address.name, "group": address.group}
        for address in session.addresses(timeout=time_left(arguments, REQUEST_MS))
        if address.name.lower() == plain
    ]
    if not found:
        seen = session.list(timeout=time_left(arguments, REQUEST_MS))
        meant = [view for view in seen if view.id.lower() == plain or (view.name or "").lower() == plain]
        found = [{"session_id": view.id} for view in meant]
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestRefused(
            f"{len(found)} sessions or addresses are called {wanted}",
            code="ambiguous_session",
            hint="Give the session id; `intercom list` shows it.",
        )
    raise RequestRefused(
        f"Nobody here is called {wanted}", code="unknown_session", hint="`intercom list` shows who is."
    )


def settle(session: Session, message_id: str, action: str, arguments: Namespace, output: Output) -> None:
    """Let a held message through, or refuse it, and say so."""
    assert action in ("release", "refuse")
    settled = session.settle_held(message_id, action, timeout=time_left(arguments, REQUEST_MS))  # type: ignore[arg-type]
    output.document({"ok": True, "messageId": settled, "action": action})
    output.line(f"{'let through' if action == 'release' else 'refused'}: message {visible(settled)}")


def _show(found: Policies, output: Output) -> int:
    output.document(
        {
            "ok": True,
            "policies": [described(view) for view in found.policies],
            "kept": [kept_described(message) for message in found.kept],
        }
    )
    if output.as_json:
        return 0
    if found.policies:
        rows = [(view.owner, f"the {view.set_by}", told(view.rules)) for view in found.policies]
        show_table(output, HEAD, rows, Fit(names=("WHOSE",), start_first=("RULES",)))
    else:
        output.line("everything is let through to everybody")
    if found.kept:
        output.line("")
        show_table(output, KEPT_HEAD, kept_rows(found.kept), Fit(whole=("ID",), names=("FROM", "TO")))
    return 0


def kept_rows(kept: Sequence[KeptMessage]) -> list[tuple[str, ...]]:
    """Return the cells of one row per message that is kept."""
    now = time.time() * 1000
    return [
        (
            message.message_id,
            who(message.sender.name, message.sender.id),
            message.owner,
            message.action,
            f"{duration(now - message.queued_at)} ago" + (f", {message.sends} times" if message.sends > 1 else ""),
        )
        for message in kept
    ]


def described(view: PolicyView) -> dict[str, Any]:
    """Return a policy as a JSON object."""
    return {
        "owner": view.owner,
        "setBy": view.set_by,
        "setAt": view.set_at,
        "rules": [{"action": rule.action, "sender": rule.sender, "group": rule.group} for rule in view.rules],
    }


def kept_described(message: KeptMessage) -> dict[str, Any]:
    """Return a kept message as a JSON object."""
    return {
        "messageId": message.message_id,
        "action": message.action,
        "owner": message.owner,
        "from": dict(message.sender.raw),
        "queuedAt": message.queued_at,
        "expiresAt": message.expires_at,
        "size": message.size,
        "sends": message.sends,
    }
