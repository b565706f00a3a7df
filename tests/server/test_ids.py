"""Test the ids the broker gives."""

from __future__ import annotations

from itertools import islice
from uuid import RFC_4122, UUID

from intercom.limits import RANDOM_IDS
from intercom.server.ids import random_ids


def test_ids_are_version_4_uuids_and_differ() -> None:
    """FE 0.4."""
    ids = list(islice(random_ids(), 3 * RANDOM_IDS + 1))
    assert len(set(ids)) == len(ids)
    for each in ids:
        read = UUID(each)
        assert (str(read), read.version, read.variant) == (each, 4, RFC_4122)
    assert {each[19] for each in islice(random_ids(), 500)} == set("89ab")
