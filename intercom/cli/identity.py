"""Decide who a command is, and open its session.

A command acts under the address of its identity (``intercom.client.who``): what answers it after its end waits there. A
guest has none; it may send, and ask while it runs, and no later reply can find it.

A second process can repeat a send or an ask under the same message id only if the broker takes both for the same
sender. So the return address of a command is derived from a secret of its home and from what it does: the message
id for ``send`` and ``ask``, name and group for ``listen``, which after a restart gets the messages it had not
finished with.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Literal

from intercom.cli.who import identity_of, name_of
from intercom.client import blocking
from intercom.client.memberships import remembered
from intercom.client.profile import DEFAULT_GROUP
from intercom.errors import AccessDenied, HomeError, RegistrationRefused, UsageError
from intercom.limits import CONNECT_MS, KEY_BYTES
from intercom.paths import (
    Paths,
    drafted,
    make_private_directory,
    prepare_home,
    read_ordinary_file,
    resolve_home,
)
from intercom.wire.mail import Hold

GUEST = "guest"
"""What others see as the status of a command that acts under nobody's name."""
MOMENT_S = 0.05
"""Time a step gets even when the steps before it used up ``--timeout``: its error tells more."""


def paths_of(arguments: Namespace) -> Paths:
    """Return where the files of the broker the command is to talk to live."""
    return Paths(resolve_home(arguments.home, os.environ))


def groups_of(arguments: Namespace, paths: Paths) -> tuple[str, ...]:
    """Return the groups given by ``--group``, else those this identity joined, else none."""
    return tuple(arguments.groups) if arguments.groups else remembered(paths, identity_of(arguments))


def time_left(arguments: Namespace, default_ms: int) -> float:
    """Return the seconds left of ``--timeout``, or of the time the verb takes without it; at least a moment."""
    timeout: float = default_ms / 1000 if arguments.timeout is None else arguments.timeout
    began: float = arguments.began
    return max(MOMENT_S, began + timeout - time.monotonic())


@contextmanager
def opened(
    arguments: Namespace,
    verb: str,
    *,
    purpose: Literal["agent", "control"] = "agent",
    occasion: str | None = None,
    default_ms: int = CONNECT_MS,
    start: bool = True,
    hold: Hold | None = None,
    address: str | None = None,
    status: str | None = None,
    keep_questions: bool = False,
    works: bool = False,
    coordinates: bool = False,
    takes_steps: bool = False,
) -> Iterator[blocking.Session]:
    """Open the session of this command for the length of a ``with`` block.

    ``occasion`` is what a second process that means the same has in common with this one; without it the session is
    like no other. Connecting is bounded by ``--timeout``, or by ``default_ms``, the time the verb takes without it;
    ``start`` tells whether a broker may be started, ``status`` what others see that the command is doing,
    ``keep_questions`` whether its address goes on owing what it was asked. ``hold`` is
    what it wants of the address of its identity, or of ``address``; ``None`` for nothing. One that only speaks goes
    without where the broker keeps no more addresses. One that ``works`` takes and answers work under its address; a
    guest cannot, since later commands could not go on with it: raises ``UsageError``. One that ``coordinates``
    controls flows of its groups; one that ``takes_steps`` of flows may report them.
    """
    if works and identity_of(arguments).address is None:
        raise UsageError("a guest takes no work", hint="Name yourself with --as NAME: later commands go on under it.")
    paths = paths_of(arguments)
    groups = groups_of(arguments, paths)
    timeout = min(time_left(arguments, default_ms), CONNECT_MS / 1000)
    identity = identity_of(arguments)
    wanted = address or identity.address
    if identity.key is None and purpose == "agent":
        status = status or GUEST
    if hold is None or wanted is None or (hold == "none" and address is None and not _may_keep(paths, wanted, groups)):
        wanted = None

    def connection(address: str | None) -> AbstractContextManager[blocking.Session]:
        return blocking.connect(
            name_of(arguments) if purpose == "agent" else None,
            groups=groups,
            home=arguments.home,
            model=f"intercom {verb}",
            status=status,
            purpose=purpose,
            start=start,
            timeout=timeout,
            return_address=None if occasion is None else _return_address(paths, verb, occasion),
            address=False if address is None else address,
            hold=hold or "none",
            keep_questions=keep_questions,
            kind="command",
            work_mode="managed_turn" if works else None,
            runtime_session_id=address if works else None,
            coordinator=coordinates,
            flows=takes_steps,
        )

    with ExitStack() as stack:
        try:
            session = stack.enter_context(connection(wanted))
        except RegistrationRefused as error:
            if error.code != "address_limit" or hold != "none" or works:
                raise
            session = stack.enter_context(connection(None))
        yield session


def _may_keep(paths: Paths, address: str, groups: tuple[str, ...]) -> bool:
    """Tell whether this process can keep the token of an address, which a sandbox may forbid.

    A command that only speaks goes without an address then: what it says matters more than what answers it later.
    """
    from intercom.client.keeping import AddressKeeper

    try:
        AddressKeeper(paths, address, groups[0] if groups else DEFAULT_GROUP).prepare()
    except (AccessDenied, HomeError):
        return False
    return True


def _return_address(paths: Paths, verb: str, occasion: str) -> str | None:
    """Return the return address for ``occasion``; ``None`` where the home holds no secret and none can be made."""
    import hashlib
    import hmac

    try:
        key = _secret(paths)
    except (OSError, HomeError):
        return None
    return hmac.new(key, f"{verb}\0{occasion}".encode(), hashlib.sha256).hexdigest()


def _secret(paths: Paths) -> bytes:
    """Return the secret of this home, made at the first use by whoever is first."""
    place = paths.identities / "command.key"
    try:
        key = read_ordinary_file(place)
    except FileNotFoundError:
        prepare_home(paths)
        make_private_directory(paths.identities)
        draft = paths.identities / f".command.key.{os.getpid()}"
        with drafted(draft) as descriptor:
            os.write(descriptor, os.urandom(KEY_BYTES))
            os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(draft, place)
        key = read_ordinary_file(place)
    if len(key) != KEY_BYTES:
        raise OSError(f"{place} is not a key")
    return key
