"""Plant faults in the product, and see that worlds notice each of them by the rule it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intercom.client.inbox import Inbox
from intercom.client.journalfile import JournalFile
from intercom.client.workerjournal import WorkerJournal
from intercom.core import addresses, deciding
from intercom.core.aliases import Aliases
from intercom.core.attention import Attention
from intercom.core.barriers import Barriers
from intercom.core.deadlines import Deadlines
from intercom.core.flow_book import FlowBook
from intercom.core.flow_reports import Reports
from intercom.core.giving import Giving
from intercom.core.holding import Holding
from intercom.core.invocations import Invocations
from intercom.core.ledger import Ledger
from intercom.core.mailing import Mailing
from intercom.core.operation import Standing
from intercom.core.operations import Operations
from intercom.core.owners import Owners
from intercom.core.policies import Policies
from intercom.core.watches import Watches
from intercom.server.perform import Performer
from intercom.store import database
from intercom.store.database import Store
from intercom.testing.keeping import MemoryKeeper
from intercom.wire.frames import Delivered
from tests.simulation.links import Notebook
from tests.simulation.runner import Failure, examine

MOST = 40
"""Worlds after which a fault that was not noticed counts as unnoticed; they begin with one known to notice it."""
EVERY = 64
"""So many numbers further the cast is the same."""

Plant = Callable[[pytest.MonkeyPatch], None]


def first_to_notice(first: int) -> Failure | None:
    """Look through worlds with the same cast."""
    numbers = range(first, first + MOST * EVERY, EVERY)
    return next((failure for number in numbers if (failure := examine(number)) is not None), None)


def drop_commits(patch: pytest.MonkeyPatch) -> None:
    """Say now and then that a batch is on disk that is not."""
    commit = Store._commit
    count = 0

    def forgetful(store: Store, batch: Any) -> int:
        nonlocal count
        count += 1
        return 1 if count % 7 == 0 else commit(store, batch)

    patch.setattr(Store, "_commit", forgetful)


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    put = Performer._put
    patch.setattr(Performer, "_put", lambda self, link, data, after, token: put(self, link, data, 0, token))


def leave_syncing_to_the_kernel(patch: pytest.MonkeyPatch) -> None:
    connect = database._connect

    def careless(paths: Any) -> Any:
        connection = connect(paths)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    patch.setattr(database, "_connect", careless)


def show_copies(patch: pytest.MonkeyPatch) -> None:
    """Forget on the client's side what came before the connection broke."""
    patch.setattr(Inbox, "knows", lambda self, message_id: False)


def forget_what_was_done(patch: pytest.MonkeyPatch) -> None:
    """Forget, with a process, what its address was done with."""
    patch.setattr(MemoryKeeper, "knows", lambda self, message_id: False)


def keep_what_failed(patch: pytest.MonkeyPatch) -> None:
    """Take nothing back when a commit fails."""

    def failed(ledger: Ledger, first: int, now: Any) -> None:
        ledger._settled = ledger._last_ticket
        for entries in (ledger._uncommitted, ledger._resting, ledger._awaiting, ledger._events):
            entries.clear()

    patch.setattr(Ledger, "failed", failed)


def forget_to_cancel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deadlines, "cancel", lambda self, deadline: None)


def say_not_delivered_of_what_was_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("intercom.wire.notices.never_confirmed", lambda reason: reason)


def call_it_delivered_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Take for another message the same one that went to who had its target's name before."""
    standing = Operations.standing

    def harsh(self: Operations, *arguments: Any) -> Standing | None:
        found = standing(self, *arguments)
        return Standing.CONFLICT if found is Standing.MOVED else found

    patch.setattr(Operations, "standing", harsh)


def lose_mail_of_the_away(patch: pytest.MonkeyPatch) -> None:
    """Forget mail that was read at a start."""
    patch.setattr(Mailing, "recover", lambda self, *record: None)


def complete_by_receipt(patch: pytest.MonkeyPatch) -> None:
    """Take the receipt of a step for its outcome."""
    accepted = Reports.accepted

    def hasty(reports: Reports, dispatch: Any, now: Any, **more: Any) -> None:
        accepted(reports, dispatch, now, **more)
        reports._settling.settle(dispatch, "completed", "it arrived", now)

    patch.setattr(Reports, "accepted", hasty)


def call_what_is_being_written_lost(patch: pytest.MonkeyPatch) -> None:
    """Judge the texts of a flow while their commit is under way."""
    patch.setattr(FlowBook, "is_recorded", lambda self, flow: True)


def begin_commands_again(patch: pytest.MonkeyPatch) -> None:
    """Write nowhere that a command is being carried out."""
    patch.setattr(WorkerJournal, "begin", lambda self, told: setattr(told, "is_begun", True))


def leave_the_journal_to_the_kernel(patch: pytest.MonkeyPatch) -> None:
    append = JournalFile._append
    patch.setattr(JournalFile, "_append", lambda self, fact, **more: append(self, fact, is_synced=False))
    patch.setattr(Notebook, "_append", lambda self, fact, **more: append(self, fact, is_synced=False))


def forget_invocations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Invocations, "recover", lambda self, *read: None)


def skip_what_happened(patch: pytest.MonkeyPatch) -> None:
    """Tell those who follow all but every ninth thing."""
    happened = Watches.happened

    def careless(watches: Watches, event: Any, now: Any) -> None:
        if event.seq % 9:
            happened(watches, event, now)

    patch.setattr(Watches, "happened", careless)


def forget_what_the_person_set(patch: pytest.MonkeyPatch) -> None:
    """Read no policy of the person at a start."""
    made = Policies.__init__
    patch.setattr(
        Policies, "__init__", lambda self, ledger, journal, records, limit: made(self, ledger, journal, (), limit)
    )


def refuse_before_it_is_recorded(patch: pytest.MonkeyPatch) -> None:
    """Refuse a request for what may never be recorded."""
    patch.setattr(Giving, "decline", lambda self, connection, request_id, no: self.refuse(connection, request_id, no))


def keep_a_policy_that_failed(patch: pytest.MonkeyPatch) -> None:
    """Leave in force what a session set itself and was told is not recorded."""
    patch.setattr(Attention, "_take_own_back", lambda self, subject, now: None)


def begin_stages_at_once(patch: pytest.MonkeyPatch) -> None:
    """Tell a stage that it is live while its run's owner still decides of messages to it."""
    patch.setattr(Barriers, "_concerning", lambda self, *stage: [])


def let_several_be_one_stage(patch: pytest.MonkeyPatch) -> None:
    """Do not look whether somebody else is the stage that wants to go live."""
    go_live = Barriers.go_live

    def careless(barriers: Barriers, *stage: Any) -> Any:
        with patch.context() as within:
            within.setattr(barriers._stages, "live", lambda text: None)
            return go_live(barriers, *stage)

    patch.setattr(Barriers, "go_live", careless)


def lead_to_some_stage(patch: pytest.MonkeyPatch) -> None:
    find = Aliases.find

    def first(aliases: Aliases, text: str) -> Any:
        return next(iter(aliases._by_text.values())) if find(aliases, text) is not None else None

    patch.setattr(Aliases, "find", first)


def call_delivered_what_no_owner_took(patch: pytest.MonkeyPatch) -> None:
    """Take the silence or departure of a run's owner for its consent."""

    def hopeful(owners: Owners, request: Any, *why: Any) -> None:
        owners._outbox.write(request.connection, Delivered(request.message_id, request.frame.attempt_id))

    patch.setattr(Owners, "_fail", hopeful)


def cut_stages_off_that_are_looked_up(patch: pytest.MonkeyPatch) -> None:
    """Forget where a stage's targets lead when somebody writes while its run has no owner."""
    find = Aliases.find

    def forgetful(aliases: Aliases, text: str) -> Any:
        alias = aliases._by_text.get(text)
        if alias is not None and aliases._routes.get(alias.run_id) is None:
            aliases._remove(alias)
        return find(aliases, text)

    patch.setattr(Aliases, "find", forgetful)


def say_that_all_were_reached(patch: pytest.MonkeyPatch) -> None:
    """Tell a run's owner that stages have a message that was written to none."""
    patch.setattr(Owners, "_broadcast", lambda self, request, targets: list(targets))


def forget_who_waited(patch: pytest.MonkeyPatch) -> None:
    """Let nobody through who waited for a child that is back."""
    take = Holding.take_waiting_for
    patch.setattr(Holding, "take_waiting_for", lambda self, places: take(self, places)[:0])


def let_the_last_in_first(patch: pytest.MonkeyPatch) -> None:
    take = Holding.take_waiting_for
    patch.setattr(Holding, "take_waiting_for", lambda self, places: take(self, places)[::-1])


def wait_too_short_for_children(patch: pytest.MonkeyPatch) -> None:
    enter = Holding._enter
    patch.setattr(Holding, "_enter", lambda self, held, earlier, due: enter(self, held, earlier, due - 6_000))


def keep_the_line_within_groups(patch: pytest.MonkeyPatch) -> None:
    """Decide about what goes up the supervisor line as about any other send."""
    patch.setattr(deciding, "SupervisorSend", type("Nothing", (), {}))


def take_any_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(addresses, "proves", lambda token, token_hash: True)


PLANTED: tuple[tuple[Plant, int, set[str]], ...] = (
    (drop_commits, 4, {"queued-arrives", "order-of-mail", "nothing-is-left", "journal-tells-all"}),
    (answer_before_the_commit, 132, {"refused-is-true", "queued-arrives", "given-up-is-true", "effect-once"}),
    (leave_syncing_to_the_kernel, 2949, {"queued-arrives", "effect-once"}),
    (show_copies, 36, {"shown-once"}),
    (forget_what_was_done, 325, {"effect-once"}),
    (keep_what_failed, 228, {"errors-are-ours", "queued-arrives", "nothing-is-left", "everything-is-answered"}),
    (forget_to_cancel, 4, {"KeyError", "nothing-is-left"}),
    (say_not_delivered_of_what_was_shown, 2500, {"given-up-is-true"}),
    (call_it_delivered_elsewhere, 4, {"delivered-is-true"}),
    (lose_mail_of_the_away, 260, {"queued-arrives"}),
    (complete_by_receipt, 32, {"steps-by-reports", "one-outcome"}),
    (call_what_is_being_written_lost, 1536, {"comes-to-rest"}),
    (begin_commands_again, 115, {"effect-once"}),
    (leave_the_journal_to_the_kernel, 19, {"events-arrive-once", "accepted-is-kept"}),
    (forget_invocations, 18, {"accepted-is-kept", "comes-to-rest", "one-id-one-message"}),
    (skip_what_happened, 7, {"watchers-see-all"}),
    (forget_what_the_person_set, 270, {"policies-hold"}),
    (refuse_before_it_is_recorded, 3001276, {"comes-to-rest"}),
    (keep_a_policy_that_failed, 1230, {"policies-hold"}),
    (begin_stages_at_once, 429, {"stages-begin-settled"}),
    (let_several_be_one_stage, 525, {"one-live-stage"}),
    (lead_to_some_stage, 13, {"only-its-recipient"}),
    (call_delivered_what_no_owner_took, 365, {"delivered-is-true", "queued-arrives"}),
    (cut_stages_off_that_are_looked_up, 525, {"stages-are-reached"}),
    (say_that_all_were_reached, 45, {"queued-arrives"}),
    (forget_who_waited, 117, {"everything-is-answered"}),
    (let_the_last_in_first, 725, {"order-of-held"}),
    (wait_too_short_for_children, 181, {"held-is-true"}),
    (keep_the_line_within_groups, 21, {"lines-hold"}),
    (take_any_token, 37, {"one-owner"}),
    # where the account of plain sends is in memory only
    (lead_to_some_stage, 20, {"only-its-recipient"}),
    (say_that_all_were_reached, 596, {"queued-arrives"}),
    (forget_who_waited, 36, {"everything-is-answered"}),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "first", "rules"), PLANTED, ids=[f"{plant.__name__}-{first}" for plant, first, _ in PLANTED]
)
def test_a_planted_fault_is_noticed(plant: Plant, first: int, rules: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    failure = first_to_notice(first)
    assert failure is not None and failure.rule in rules, failure
