"""Keep the places of children that are being brought back, over reconnects (protocol 4.12, 4.13, 6.11)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from intercom.client.composing import clean_text
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile, checked_group
from intercom.errors import ReservationRefused, UsageError
from intercom.limits import RELEASE_TEXT_CHARACTERS, REQUEST_MS, RESTORING_ALIASES
from intercom.wire.frames import ReleaseRestoringRecipient, ReserveRestoringRecipient, RestoringRecipientAck
from intercom.wire.reasons import code_of

if TYPE_CHECKING:
    from intercom.wire.unions import Request


class Reservation(Struct, frozen=True):
    """Describe the place of one child."""

    capability: str
    group: str | None
    aliases: tuple[str, ...]
    is_dormant: bool
    gone: str | None = None
    """What senders are told of a child that does not come back."""

    def reserve(self, request_id: str) -> ReserveRestoringRecipient:
        """Return the frame that keeps the place."""
        return ReserveRestoringRecipient(
            request_id,
            self.capability,
            group=UNSET if self.group is None else self.group,
            dormant=True if self.is_dormant else UNSET,
            aliases=list(self.aliases) if self.aliases else UNSET,
        )


class Places(dict[str, Reservation]):
    """Hold the places this session keeps, by capability."""

    def frames(self, ids: Callable[[], str]) -> list[Request]:
        """Return what has to be written after a reconnect."""
        frames: list[Request] = []
        for place in self.values():
            frames.append(place.reserve(ids()))
            if place.gone is not None:
                frames.append(ReleaseRestoringRecipient(ids(), place.capability, gone=place.gone))
        return frames


class Acknowledged(RequestOperation[None]):
    """Wait until the broker has taken a reservation or its end."""

    def answered(self, answer: RestoringRecipientAck) -> None:
        """Settle with success, or with what the broker refused it for."""
        if answer.error is UNSET:
            super().answered(answer)
            return
        code = code_of(answer.error)
        self.fail(ReservationRefused(answer.error, code="not_supervised" if code == "not_supervised" else None))


def reserve_child(
    profile: Profile,
    places: Places,
    child: str,
    *,
    now: int,
    group: str | None = None,
    aliases: Iterable[str] = (),
    dormant: bool = False,
    timeout_ms: int = REQUEST_MS,
) -> Acknowledged:
    """Let messages to a child wait until it is back; the result is ``None``."""
    place = Reservation(
        capability_of(profile, child),
        None if group is None else checked_group(group),
        tuple(_alias(alias) for alias in aliases),
        dormant,
    )
    if len(place.aliases) > RESTORING_ALIASES:
        raise UsageError(f"a child has at most {RESTORING_ALIASES} aliases, not {len(place.aliases)}")

    def keep(answer: Any) -> None:
        places[place.capability] = place

    return Acknowledged(place.reserve, RestoringRecipientAck, keep, now + timeout_ms)


def release_child(
    profile: Profile,
    places: Places,
    child: str,
    *,
    now: int,
    gone: str | None = None,
    refusal: str | None = None,
    timeout_ms: int = REQUEST_MS,
) -> Acknowledged:
    """Keep a child's place no longer; the result is ``None``."""
    capability = capability_of(profile, child)
    if gone is not None and refusal is not None:
        raise UsageError("gone and refusal exclude each other")
    frame = ReleaseRestoringRecipient(
        "",
        capability,
        gone=UNSET if gone is None else clean_text(gone, "gone")[:RELEASE_TEXT_CHARACTERS],
        refusal=UNSET if refusal is None else clean_text(refusal, "refusal")[:RELEASE_TEXT_CHARACTERS],
    )

    def make(request_id: str) -> ReleaseRestoringRecipient:
        frame.request_id = request_id
        return frame

    def drop(answer: Any) -> None:
        kept = places.pop(capability, None)
        if kept is not None and gone is not None:
            places[capability] = Reservation(capability, kept.group, kept.aliases, kept.is_dormant, gone)

    return Acknowledged(make, RestoringRecipientAck, drop, now + timeout_ms)


def capability_of(profile: Profile, child: str) -> str:
    """Return the capability of a child given by its name or by the capability; raise ``UsageError`` for a stranger."""
    wanted = clean_text(child, "child")
    if wanted in profile.children:
        return wanted
    found = [capability for capability, name in profile.children.items() if name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several children were authorised as {wanted!a}", hint="Name one by its capability.")
    raise UsageError(f"no child was authorised as {wanted!a}", hint="Call authorize_child first.")


def _alias(alias: Any) -> str:
    cleaned = clean_text(alias, "alias")
    try:
        uuid.UUID(cleaned)
    except ValueError:
        raise UsageError(f"the alias {cleaned!a} is no session id") from None
    return cleaned
