"""Turn the arguments of ``connect`` into a session that may begin, the same for both shells."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from intercom.client.assignment import Assignment
from intercom.client.composing import milliseconds as milliseconds
from intercom.client.launch import Launch
from intercom.client.lifecycle import Keeper
from intercom.client.profile import DEFAULT_KIND, AddressWish, Profile, Purpose, Push, TakesFlows
from intercom.client.session import ClientSession
from intercom.client.views import IncomingMessage
from intercom.limits import COMING_BACK_MS
from intercom.paths import Paths, resolve_home
from intercom.wire.mail import Hold
from intercom.wire.work import ExecutionSurface, WorkMode

SPAWN_TOKEN_VARIABLE = "INTERCOM_SPAWN_TOKEN"
"""Where a process that a broker has started finds the token its first session is to show."""

if TYPE_CHECKING:
    from intercom.client.reporting import Place
    from intercom.client.workerjournal import WorkerJournal


class Setup(NamedTuple):
    """Hold what a shell needs to run a session."""

    core: ClientSession
    first_paths: Paths
    """Where the home was when the session was opened."""
    start: bool
    """Whether a broker may be started."""
    timeout_ms: int
    """Time for connecting and registering."""

    @property
    def paths(self) -> Paths:
        """Return where the home is now: a directory that has become a link has moved, with its sessions."""
        home = os.path.realpath(self.first_paths.home)
        return self.first_paths if home == os.fspath(self.first_paths.home) else Paths(Path(home))

    def young_until(self) -> int | None:
        """Return until when (monotonic ms) the broker counts as just started; ``None`` when it is older."""
        return young_until(self.paths)

    def launch(self) -> Launch:
        """Return the next attempt to get a connection."""
        return Launch(self.paths, start=self.start and self.core.recovery.may_start, now=now)


def young_until(paths: Paths) -> int | None:
    """Return until when (monotonic ms) the broker of a home counts as just started; ``None`` when it is older.

    Its pid file was written when it began to listen.
    """
    try:
        age = time.time() - os.stat(paths.pid).st_mtime
    except OSError:
        return None
    left = COMING_BACK_MS - int(age * 1000)
    return now() + left if 0 < left <= COMING_BACK_MS else None


def prepare(
    name: str | None,
    *,
    group: str | None,
    groups: Iterable[str] | None,
    home: str | os.PathLike[str] | None,
    model: str,
    status: str | None,
    purpose: Purpose,
    start: bool,
    timeout: float,
    return_address: str | None,
    session_id: str | None,
    cwd: str | None,
    supervisor: str | None = None,
    owner_token: str | None = None,
    address: bool | str = False,
    hold: Hold = "take",
    keep_questions: bool = False,
    kind: str = DEFAULT_KIND,
    push: Push | None = None,
    push_way: str | None = None,
    work_mode: WorkMode | None = None,
    runtime_session_id: str | None = None,
    surface: ExecutionSurface | None = None,
    coordinator: bool = False,
    flows: TakesFlows = False,
    durable: bool = False,
    message_kind: type[IncomingMessage],
    assignment_kind: type[Assignment],
) -> Setup:
    """Check the arguments of ``connect``; nothing is created or connected. Raises ``UsageError`` or ``HomeError``."""
    profile = Profile(
        name,
        group=group,
        groups=groups,
        model=model,
        status=status,
        purpose=purpose,
        return_address=return_address,
        session_id=session_id,
        cwd=cwd,
        supervisor=supervisor,
        owner_token=owner_token,
        address=address,
        hold=hold,
        keep_questions=keep_questions,
        kind=kind,
        push=push,
        push_way=push_way,
        work_mode=work_mode,
        runtime_session_id=runtime_session_id,
        surface=surface,
        coordinator=coordinator,
        flows=flows,
        durable=durable,
    )
    if purpose == "agent":
        # Neither another session of this process nor a program it starts may show the token again.
        profile.spawn_token = os.environ.pop(SPAWN_TOKEN_VARIABLE, None) or None
    paths = Paths(resolve_home(None if home is None else os.fspath(home), os.environ))
    keeper = _keeper(paths, profile.address)
    core = ClientSession(
        profile,
        ids=new_id,
        chance=chance,
        clock=now,
        message_kind=message_kind,
        assignment_kind=assignment_kind,
        keeper=keeper,
        reports=_reports(paths, profile.address, flows),
        journal=_journal(paths, profile),
    )
    return Setup(core, paths, start, milliseconds(timeout, "timeout"))


def _keeper(paths: Paths, wish: AddressWish | None) -> Keeper | None:
    if wish is None:
        return None
    from intercom.client.keeping import AddressKeeper  # locks files, which not every system can

    return AddressKeeper(paths, wish.name, wish.group)


def _reports(paths: Paths, wish: AddressWish | None, flows: TakesFlows) -> Place | None:
    if wish is None or not flows:
        return None
    from intercom.client.report_files import ReportFiles  # likewise

    return ReportFiles(paths, wish.name, wish.group)


def _journal(paths: Paths, profile: Profile) -> WorkerJournal | None:
    if not profile.durable or profile.address is None:
        return None
    from intercom.client.journalfile import JournalFile
    from intercom.client.keeping import key_of  # likewise

    return JournalFile(paths, key_of(profile.address.name, profile.address.group), new_id)


def now() -> int:
    """Return the monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def wall() -> int:
    """Return the time of day in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return a fresh random id."""
    return str(uuid.uuid4())


def chance() -> float:
    """Return a random number from 0 to 1."""
    return os.urandom(1)[0] / 255
