"""Measure what many sessions cost that are only there: others' throughput, a change of presence, memory."""

from __future__ import annotations

from scripts.bench.effort import CROWDED, FEW, IDLE_MEMORY, PRESENCE, Sample
from scripts.bench.generator import Load
from scripts.bench.peers import Crowd, Member
from scripts.bench.running import Running
from scripts.bench.scene import Scene, sample

TEXT_BYTES = 256
GROUPS = 50
GROUP = 20
"""Sessions in each group; those of the first group talk."""
TOGETHER = 500
"""Sessions of the group in which one changes its presence."""
FIRST = 20
"""Sessions that are there before memory is looked at: the first ones bring what all share."""


def others() -> list[Member]:
    """Return the sessions of all groups but the one that talks."""
    return [Member(f"idle-{number}", f"group-{number // GROUP + 1}") for number in range((GROUPS - 1) * GROUP)]


def crowded(scene: Scene) -> dict[str, Sample]:
    """Compare the throughput of ten pairs among a thousand sessions with that of eight pairs that are alone."""
    few, many = scene.effort.throughput(8, 16, TEXT_BYTES), scene.effort.throughput(GROUP // 2, 16, TEXT_BYTES)
    with scene.broker() as running:
        samples = {}
        for key in (FEW.key, CROWDED.key) if scene.turn % 2 else (CROWDED.key, FEW.key):
            samples[key] = _alone(scene, running, few) if key == FEW.key else _among(scene, running, many)
    return samples


def _alone(scene: Scene, running: Running, load: Load) -> Sample:
    result = scene.load(running, load)
    return sample(result, result.messages_per_s)


def _among(scene: Scene, running: Running, load: Load) -> Sample:
    with Crowd(running.address, others()):
        return _alone(scene, running, load)


def presence(scene: Scene) -> dict[str, Sample]:
    """Measure what the broker's processor needs for a change of presence that 499 are told."""
    members = [Member(f"member-{number}", "together") for number in range(TOGETHER)]
    with scene.broker() as running, Crowd(running.address, members) as crowd:
        values = []
        for number in range(scene.effort.changes):
            before = running.busy_ms()
            crowd.write(number, {"type": "presence", "status": f"at {number}", "requestId": "p"})
            crowd.wait_for_all()
            crowd.drop_at_once()
            values.append(running.busy_ms() - before)
    return {PRESENCE.key: Sample(tuple(values))}


def memory(scene: Scene) -> dict[str, Sample]:
    """Measure the memory a broker takes for each of a thousand sessions that only are there."""
    members = [Member(f"idle-{number}", f"group-{number // GROUP}") for number in range(GROUPS * GROUP)]
    with scene.broker() as running, Crowd(running.address, members[:FIRST]):
        before = running.resident_kib()
        with Crowd(running.address, members[FIRST:]):
            grown = running.resident_kib() - before
    return {IDLE_MEMORY.key: Sample((grown / len(members[FIRST:]),))}
