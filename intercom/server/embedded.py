"""Be a broker inside another program, which stays the master of its process.

The broker has a thread and an event loop of its own. So the program may use any event loop or none, and a program that
is busy for a while delays nobody. What belongs to the process is left alone: signal handlers, logging, the policy for
event loops, the working directory, limits, standard error, the garbage collector. Only the mode of new files is
changed for the moment in which the socket is made.

Nothing here ends the process. A broker whose event loop stands still says so in its log, and a disk that never answers
keeps one daemon thread and the lock of the home.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import Event, Thread
from types import TracebackType

from intercom.config import load_settings, settings_table
from intercom.errors import BrokerError, ConfigError, IntercomError, RequestTimeout, StartFailed, UsageError
from intercom.limits import STOP_WAIT_MS
from intercom.paths import Paths, prepare_home, resolve_home
from intercom.server import ownership
from intercom.server.app import facts_of
from intercom.server.log import Log
from intercom.server.serving import Serving


def serve(
    home: str | os.PathLike[str] | None = None, *, settings: Mapping[str, object] | None = None
) -> EmbeddedBroker:
    """Return a broker that serves in this process for the length of a ``with`` or ``async with`` block.

    Args:
        home: the directory of the broker, else ``INTERCOM_HOME``, else the user's state directory.
        settings: settings by name, which come before the variables and ``intercom.toml``. ``idle_ms`` has no meaning
            here: the broker stays until the block is left.

    Entering the block waits until the broker answers, at most 10 s for the lock of the home. ``async with`` works
    under asyncio and trio. Raises ``ConfigError`` and ``HomeError``; entering raises ``StartFailed`` too, with the
    code ``already_served`` when another broker answers, ``held_elsewhere`` when a process holds the home and does not
    answer, ``cannot_serve`` for everything else. Leaving raises ``RequestTimeout`` when the disk does not let go of
    the broker, and ``BrokerError`` with the code ``internal`` when it ended by an error of its own.
    """
    paths = Paths(resolve_home(None if home is None else os.fspath(home), os.environ))
    return EmbeddedBroker(paths, _checked(settings or {}))


class EmbeddedBroker:
    """Hold a broker inside this process; made by ``serve``, for one block only.

    The broker may end before the block does: ``intercom stop`` and ``intercom restart`` mean this one too.
    """

    def __init__(self, paths: Paths, overrides: Mapping[str, object]) -> None:
        """Prepare; nothing is created before the block is entered."""
        self._paths = paths
        self._overrides = overrides
        self._thread: Thread | None = None
        self._serving: Serving | None = None
        self._is_unwanted = False
        self._begun = Event()
        """It answers, or it never will."""
        self._ended = Event()
        self._refusal: IntercomError | None = None
        self._fault: str | None = None
        self._process = 0
        """Where it was started: a child made by a fork leaves the block too, and must not stop what is not its own."""

    # --- what a program may ask -------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """Return the real path of the home, for ``connect(home=...)``."""
        return str(self._paths.home)

    @property
    def socket(self) -> str:
        """Return the path of the socket."""
        return str(self._paths.socket)

    @property
    def running(self) -> bool:
        """Tell whether the broker serves."""
        return self._serving is not None and not self._ended.is_set()

    @property
    def stop_reason(self) -> str | None:
        """Return why the broker stopped or is stopping, ``None`` while nothing has stopped it."""
        return self._fault or (None if self._serving is None else self._serving.stop_reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the broker has ended, at most ``timeout`` seconds; tell whether it has."""
        return self._ended.wait(timeout)

    async def wait_ended(self) -> None:
        """Wait until the broker has ended, whoever stopped it."""
        await _in_thread(self._ended.wait, abandon=True)

    # --- the block --------------------------------------------------------------------------------------

    def __enter__(self) -> EmbeddedBroker:
        """Start the broker and return it once it answers."""
        self._start()
        try:
            self._begun.wait()
        except BaseException:
            self._stop("the start was interrupted")
            raise
        self._raise_refusal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the broker and return once it has given back its home."""
        self._stop("the program that embeds it is done")
        if kind is None:
            self._raise_fault()

    async def __aenter__(self) -> EmbeddedBroker:
        """Start the broker and return it once it answers; the event loop goes on meanwhile."""
        self._start()
        try:
            await _in_thread(self._begun.wait, abandon=True)
        except BaseException:
            await self._stop_shielded("the start was cancelled")
            raise
        self._raise_refusal()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the broker and return once it has given back its home, also when the task is cancelled."""
        await self._stop_shielded("the program that embeds it is done")
        if kind is None:
            self._raise_fault()

    # --- inner works ------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is not None:
            raise UsageError("an embedded broker serves for one block only", hint="Call intercom.serve again.")
        self._process = os.getpid()
        # A daemon, so that a disk that never answers cannot keep the program from ending.
        self._thread = Thread(target=self._live, name="intercom-broker", daemon=True)
        self._thread.start()

    def _stop(self, reason: str) -> None:
        if self._process != os.getpid():
            return
        self._is_unwanted = True
        if self._serving is not None:
            self._serving.stop_soon(reason)
        if self._thread is not None:
            self._thread.join(STOP_WAIT_MS / 1000)

    async def _stop_shielded(self, reason: str) -> None:
        from anyio import CancelScope

        with CancelScope(shield=True):
            await _in_thread(lambda: self._stop(reason))

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _raise_fault(self) -> None:
        if self._process != os.getpid():
            return
        if not self._ended.is_set():
            raise RequestTimeout(
                f"The broker in {self._paths.home} has not stopped in time: its disk does not answer",
                hint="The home stays locked until the disk answers or this program ends.",
            )
        if self._fault is not None:
            hint = "`intercom log` shows what it wrote down."
            raise BrokerError(f"The broker in {self._paths.home} {self._fault}", code="internal", hint=hint)

    # --- in the thread of the broker --------------------------------------------------------------------

    def _live(self) -> None:
        try:
            if self._serve():
                self._fault = "ended by an internal error"
        except IntercomError as error:
            self._refusal = error
        except ownership.StartRefused as refused:
            self._refusal = _told(refused)
        except Exception as error:
            if self._begun.is_set():
                self._fault = f"ended by an internal error: {error!r}"
            else:
                self._refusal = StartFailed(f"The broker could not be built: {error!r}", code="internal", retry="never")
                self._refusal.__cause__ = error
        finally:
            self._ended.set()
            self._begun.set()

    def _serve(self) -> int:
        paths = self._paths
        if ownership.probe(paths.socket) is ownership.Presence.ANSWERS:
            raise ownership.AnotherServes(f"a broker answers on {paths.socket}")
        prepare_home(paths)
        settings = load_settings(paths, os.environ, self._overrides)
        with ownership.held(paths, gave_up=lambda: self._is_unwanted) as (sock, territory):
            log = Log(paths.log, level=settings.log_level)
            facts = {**facts_of(paths, settings), "embedded": True, "startedBy": "a program that embeds it"}
            try:
                serving = Serving(paths, settings, sock, territory, log, facts, end_process=None)
                log.write("started", **facts)
                self._serving = serving
                if self._is_unwanted:
                    serving.stop_soon("the start was given up")
                self._begun.set()
                return serving.run()
            finally:
                log.close()


def _checked(settings: Mapping[str, object]) -> dict[str, object]:
    table = settings_table()
    for name, value in settings.items():
        if name not in table:
            raise ConfigError(f"settings: {name!r} is not a setting", hint="Settings are: " + ", ".join(table) + ".")
        if not table[name].takes(value):
            raise ConfigError(f"settings: {name} must be {table[name].accepts}, not {value!r}")
    return dict(settings)


def _told(refused: ownership.StartRefused) -> StartFailed:
    reason = f"No broker can be embedded: {refused}"
    hint = "`intercom doctor` looks for causes."
    if isinstance(refused, ownership.AnotherServes):
        error = StartFailed(reason, code="already_served", hint="Connect to the broker that is there.", retry="never")
    elif isinstance(refused, ownership.LockHeld):
        error = StartFailed(reason, code="held_elsewhere", hint=hint)
    else:
        error = StartFailed(reason, code="cannot_serve", hint=hint, retry="never")
    error.__cause__ = refused
    return error


async def _in_thread(function: Callable[[], object], *, abandon: bool = False) -> None:
    from anyio import CapacityLimiter, to_thread

    # A limiter of its own: a program whose worker threads are all busy must still be able to stop the broker.
    await to_thread.run_sync(function, abandon_on_cancel=abandon, limiter=CapacityLimiter(1))
