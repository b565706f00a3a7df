"""Test which letters are older than the home of their address, and which may be passed on (protocol 6.13.7)."""

from __future__ import annotations

import pytest

from intercom.core.claims import Claims
from intercom.core.peer_records import AddressHome

KEY = "k"
OWN, B, C = "own", "b", "c"


class Told:
    """Tell of claims, of which some are missed."""

    def __init__(self) -> None:
        self.claims = Claims(OWN)
        self.home, self.number = "", 0
        """As the engine holds them."""
        self.known = ""

    def move(self, home: str, *, is_heard: bool = True) -> None:
        seen = AddressHome(KEY, "bob", "default", (), "t", home, self.number + 1, self.number)
        self.number += 1
        if is_heard:
            self.claims.noted(seen, self.known)
            self.known = home


@pytest.fixture
def told() -> Told:
    return Told()


def test_nothing_is_old_before_a_claim_is_known(told: Told) -> None:
    assert told.claims.newest(KEY) == 0
    assert not told.claims.is_old(KEY, 0) and not told.claims.is_old(KEY, None)


def test_what_was_posted_before_the_address_came_here_is_old(told: Told) -> None:
    """Protocol 6.13.7: whatever has been known since, and also while it is elsewhere again."""
    told.move(OWN)
    assert not told.claims.is_old(KEY, 1)
    told.move(B)
    told.move(OWN)
    assert [told.claims.is_old(KEY, claim) for claim in (0, 1, 2, 3, 4)] == [True, True, True, False, False]
    told.move(OWN)  # it was told anew, with other groups
    assert not told.claims.is_old(KEY, 3)
    told.move(C)
    assert told.claims.is_old(KEY, 2) and not told.claims.is_old(KEY, 3)
    assert told.claims.newest(KEY) == 5


def test_a_letter_that_says_no_claim_is_not_old(told: Told) -> None:
    """Protocol 6.13.17: a broker that knows of none has posted it."""
    told.move(B)
    told.move(OWN)
    assert not told.claims.is_old(KEY, None) and told.claims.may_be_passed_on(KEY, None)


def test_what_came_here_in_time_goes_on_to_who_took_the_address(told: Told) -> None:
    """Protocol 6.13.7: nobody else can have had it."""
    told.move(OWN)
    told.move(B)
    assert told.claims.may_be_passed_on(KEY, 1) and not told.claims.may_be_passed_on(KEY, 0)
    told.move(B)
    assert told.claims.may_be_passed_on(KEY, 1)


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("last", [B, C])
def test_nothing_goes_on_where_a_third_broker_had_the_address(told: Told, last: str, *, is_heard: bool) -> None:
    """Protocol 6.13.7: also where that was not heard of, and the address is back at the second one."""
    told.move(OWN)
    told.move(B)
    told.move(C, is_heard=is_heard)
    told.move(last)
    assert not told.claims.may_be_passed_on(KEY, 1)


def test_nothing_goes_on_from_where_the_address_never_was(told: Told) -> None:
    """Protocol 6.13.7: as far as this process knows."""
    told.move(B)
    told.move(C)
    assert not told.claims.may_be_passed_on(KEY, 2)


def test_what_the_engine_forgets_is_forgotten(told: Told) -> None:
    told.move(OWN)
    told.move(B)
    told.claims.forgotten(KEY)
    assert told.claims.newest(KEY) == 0
    assert not told.claims.is_old(KEY, 0) and not told.claims.may_be_passed_on(KEY, 1)
