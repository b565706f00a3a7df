"""Let hosts own workflow runs, stages begin and end, and others write to them before they are there and meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intercom.client import commands
from intercom.client.notices import Event, HostAsked
from intercom.client.notifying import notify
from intercom.client.operations import Operation
from intercom.client.owning import Announcement, Run, ask_host, new_run
from intercom.client.queueing import Asked, StageAnswer, StageRequest
from intercom.client.rosters import RosterStage
from intercom.client.staging import GoingLive, LiveStage, new_stage
from intercom.client.views import IncomingMessage
from intercom.errors import IntercomError, MessageConflict, OutcomeUnknown, SendError
from intercom.wire.targets import StageTarget, invocation_group, parse_target
from tests.simulation.account import Broken, Letter, text_of
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role
from tests.simulation.wire import Wire

_ROOT = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
_NESTED = "1d2e3f40-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
_GROUP = invocation_group(_ROOT)
_CAPABILITIES = {_ROOT: "root secret", _NESTED: "nested secret"}
_PROMPT = 0.3
"""How likely it is that a host answers, or somebody goes live, when there is time for it."""
_TIMEOUT_MS = 20_000
_LETTERS = 20
_LAST = 3
"""So many more letters whoever is a stage at the end is sent at most, until one is delivered."""
_AGAIN_MS = 30_000
"""Between two of them: a stage may be back before the owner of its run, which is on its way then."""


@dataclass(eq=False)
class Place:
    """Hold one stage, whoever is it."""

    id: str
    name: str
    run_id: str
    live: Stage | None = None
    """Who has begun its work as this stage and has not ended; its host knows, for it started it."""
    done: set[str] = field(default_factory=set)
    """Messages it was done with; they are part of its work, and outlive its processes."""

    @property
    def target(self) -> str:
        """Return the one text that means it for ever."""
        return "/".join((_GROUP, *(() if self.run_id == _ROOT else (self.run_id,)), self.id))

    @property
    def parsed(self) -> StageTarget:
        """Return its target by its parts."""
        target = parse_target(self.target)
        assert target is not None
        return target


@dataclass(eq=False)
class Kept:
    """Hold one message that a host keeps on disk."""

    id: str
    target: str
    text: str
    sender_id: str
    name: str | None
    address: str | None
    wall: int
    read_by: set[str] = field(default_factory=set)
    """Stages that have it, or to which the broker says that it has written it."""


@dataclass(eq=False)
class Broadcast:
    """Hold one message to all stages that a pattern means."""

    id: str
    target: str
    is_kept: bool = False
    is_refused: bool = False
    seen: list[tuple[str, int]] = field(default_factory=list)


class Runs(Part):
    """Hold two hosts, four who are stages of their runs, and two who write to them."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.places = [
            Place("st-1", "plan", _ROOT),
            Place("st-2", "check", _ROOT),
            Place("st-3", "check", _NESTED),
        ]
        self.kept: dict[str, Kept] = {}
        """What hosts keep on disk, in the order in which it came."""
        self.forwarded: set[str] = set()
        """What hosts said is for who is there; should that leave, it may wait in a mailbox as other letters do."""
        self.reached: list[tuple[str, Stage, Wire | None]] = []
        """What is said to have been written to whom, on which connection."""
        self.letters: list[Letter] = []
        """What was written to one stage."""
        self.last: dict[str, list[Letter]] = {place.id: [] for place in self.places}
        """What was written to each stage when all trouble was over."""
        self.begun: dict[str, int] = {}
        """When its sender first sent each message, in monotonic milliseconds."""
        self.broadcasts: dict[str, Broadcast] = {}
        hosts = (("group", _GROUP), ("purpose", "control"))
        self.hosts = [self.add(Role("hana", also=hosts), Host), self.add(Role("hugo", also=hosts), Host)]
        self.hosts[0].run_id, self.hosts[1].run_id = _ROOT, _NESTED
        for name, number in (("ann", 0), ("bea", 1), ("ben", 1), ("cat", 2)):
            self.add(Role(name, also=(("group", _GROUP),)), Stage).place = self.places[number]
        self.add(Role("ina", address=True, also=(("group", _GROUP),)), Writer)
        self.add(Role("otto", address=True, also=(("groups", ("default", _GROUP)),)), Writer)

    def meant(self, target: StageTarget) -> list[Place]:
        """Return the stages a path means: one by its id, or all by their name."""
        runs = [_NESTED] if _NESTED in target.segments[:-1] else [_ROOT]
        places = [place for place in self.places if place.run_id in runs]
        return [each for each in places if each.id == target.last] or [
            each for each in places if each.name == target.last
        ]

    def began(self, stage: Stage, moment: int) -> None:
        """Take notice that a stage is told that it is live, which it asked for at a moment; it reads what is kept."""
        place = stage.place
        other = place.live
        if other is not None and other is not stage and other.is_surely_live:
            raise Broken("one-live-stage", f"{stage.name} is {place.id}, and {other.name} still is")
        for host in self.hosts:
            for asked in host.waiting():
                if self._is_settled(host, asked, place, moment):
                    continue
                raise Broken("stages-begin-settled", f"{place.id} begins while {host.name} decides of {asked.request}")
        place.live = stage
        stage.live_by = stage.wire
        self.read_kept(stage)

    def read_kept(self, stage: Stage) -> None:
        """Let a stage read what is kept for it and it has not."""
        place = stage.place
        for kept in list(self.kept.values()):
            target = parse_target(kept.target)
            if target is None or place.id in kept.read_by or not target.matches(place.parsed):
                continue
            kept.read_by.add(place.id)
            if kept.id not in place.done:
                place.done.add(kept.id)
                self.read(stage, kept.id, kept.text)

    def _is_settled(self, host: Host, asked: Asked, place: Place, moment: int) -> bool:
        """Tell whether a stage that asked to be live at a moment may begin although its host has not said a word."""
        target = parse_target(asked.request.target)
        assert target is not None
        concerns = target.last in (place.id, place.name) if target.kind == "path" else target.matches(place.parsed)
        begun = self.begun.get(asked.request.id)
        is_open = begun is not None and self.clock.now.mono - begun < self.world.limits.owner_answer_ms
        was_asked_before = host.asked_at.get(asked.request_id, moment) < moment
        return not (concerns and is_open and was_asked_before and host.wire is not None and not host.wire.broker_gone)

    def read(self, stage: Stage, message_id: str, text: str) -> None:
        """Take notice that a stage reads what was kept for it."""
        if message_id in self.broadcasts:
            self.saw(stage, message_id, text)
            return
        account = self.world.account
        letter = account.letters.get(message_id)
        if letter is None or text != text_of(letter) or letter.target != stage.place.id:
            raise Broken("as-it-was-sent", f"{stage.name} reads {message_id} {text!r}")
        if letter.is_refused:
            raise Broken("refused-is-true", f"{message_id} was refused, and then read by {stage.name}")
        account.tell(f"{stage.name} {stage.pid} reads {message_id}")
        letter.shown.append((stage.mailbox, stage.pid))
        letter.first_shown = letter.first_shown or account.moment()
        account.finished(stage.mailbox, stage.pid, message_id)

    def saw(self, stage: Stage, message_id: str, text: str) -> None:
        """Take notice that a stage sees something that was written to several."""
        broadcast = self.broadcasts[message_id]
        target = parse_target(broadcast.target)
        self.tell(f"{stage.name} {stage.pid} sees the broadcast {message_id}")
        if target is None or not target.matches(stage.place.parsed):
            raise Broken("only-its-recipient", f"{message_id} for {broadcast.target} came to {stage.place.id}")
        if text != _text_to_all(message_id):
            raise Broken("as-it-was-sent", f"{message_id} says {text!r}")
        if broadcast.is_refused:
            raise Broken("refused-is-true", f"{message_id} was refused, and then seen by {stage.name}")
        if (stage.name, stage.pid) in broadcast.seen:
            raise Broken("shown-once", f"{message_id} was shown twice to {stage.name} {stage.pid}")
        broadcast.seen.append((stage.name, stage.pid))

    def keeps_order(self, stage: Stage, letter: Letter) -> None:
        """Hold that nothing overtakes what is kept for a stage, once that was said."""
        for other in self.world.account.letters.values():
            if (
                other.sender == letter.sender
                and other.target == letter.target
                and other.id in self.kept
                and other.is_kept
                and other.settled is not None
                and other.settled < letter.begun
                and not other.shown
            ):
                raise Broken("order-of-mail", f"{letter.id} overtook {other.id} at {stage.place.id}")

    def at_rest(self) -> None:
        """Hold that every stage is live and was reached, and that nothing that is kept waits for ever."""
        for place in self.places:
            if place.live is None:
                raise Broken("comes-to-rest", f"nobody is {place.id}, and its runs are there")
            if not any(letter.outcome == "delivered" or letter.finished for letter in self.last[place.id]):
                raise Broken("stages-are-reached", f"nothing reaches {place.id}: {self.last[place.id]}")
        for letter in self.letters:
            if letter.outcome == "queued" and letter.id not in self.kept and letter.id not in self.forwarded:
                raise Broken("queued-arrives", f"{letter.id} is kept nowhere")
        for message_id, stage, wire in self.reached:
            if stage.is_surely_live and stage.wire is wire and message_id not in stage.place.done:
                raise Broken("queued-arrives", f"{message_id} is said to have reached {stage.name}, who never saw it")
        for broadcast in self.broadcasts.values():
            kept = self.kept.get(broadcast.id)
            if broadcast.is_kept and (kept is None or len(kept.read_by) < len(self._all(broadcast))):
                raise Broken("queued-arrives", f"the broadcast {broadcast.id} is lost: {kept}")

    def _all(self, broadcast: Broadcast) -> list[Place]:
        target = parse_target(broadcast.target)
        assert target is not None
        return [place for place in self.places if target.matches(place.parsed)]


class Host(Actor):
    """Own a run, and keep what is written to its stages before they begin."""

    part: Runs
    run_id: str
    run: Run | None
    asked_at: dict[str, int]
    """The moments at which it was asked what becomes of a message, by the ids of those requests."""

    def start(self) -> None:
        """Begin without a run: it is announced when there is time."""
        self.run = None
        self.asked_at = {}
        super().start()

    def waiting(self) -> list[Asked]:
        """Return what it was asked on its present connection and has not answered."""
        if self.core is None or self.run is None:
            return []
        return [each for each in self.run.waiting if isinstance(each, Asked)]

    def heard(self, event: Event) -> None:
        """Note when it was asked."""
        if isinstance(event, HostAsked):
            for asked in self.waiting():
                self.asked_at.setdefault(asked.request_id, self.account.moment())

    def steps(self) -> list[Callable[[], object]]:
        """Announce the run as soon as that can be, and take some time for each answer."""
        found = super().steps()
        if self.core is not None and self.is_online:
            if (self.run is None or self.run.lost is not None) and not self.tasks:
                found.append(self._announce)
            elif self.run is not None and self.run.waiting:
                found.append(self._answer)
        return found

    def act(self) -> bool:
        """Tell somebody what became of a message, announce the run again, or be away for a while."""
        if self.chance.random() < 0.1:
            self.close(finished=True)
        elif self.part.kept and self.run is not None and self.chance.random() < 0.6:
            self._tell()
        else:
            self._announce()
        return True

    def _answer(self) -> None:
        assert self.core is not None and self.run is not None
        if self.chance.random() < _PROMPT:
            ask_host(self.core.commitments.runs, self.run, self)
            self._look()

    def admit(self, request: StageRequest) -> StageAnswer:
        """Forward to who has begun, keep what is for others."""
        part = self.part
        target = parse_target(request.target)
        assert target is not None
        answer = self._decide(request, target)
        part.tell(f"{self.name} {self.pid} says of {request.id} for {request.target}: {answer}")
        return answer

    def _decide(self, request: StageRequest, target: StageTarget) -> StageAnswer:
        part = self.part
        kept = part.kept.get(request.id)
        if kept is not None and kept.text != request.text:
            return StageAnswer.refused("another message has this id", is_conflict=True)
        if target.kind != "path":
            wanted = [place for place in part.places if target.matches(place.parsed)]
            if not wanted:
                return StageAnswer.refused("no stage is meant")
            self._keep(request, request.target)
            return StageAnswer.queued(
                self._position(request.id), forward_to=[each.target for each in wanted if each.live]
            )
        found = part.meant(target)
        if len(found) != 1:
            return StageAnswer.refused(f"{len(found)} stages are called so")
        (place,) = found
        if request.id in place.done:
            return StageAnswer.delivered()
        if kept is not None:
            return StageAnswer.queued(self._position(request.id))
        if request.is_live or place.live is not None:
            part.forwarded.add(request.id)
            return StageAnswer.forward(place.target)
        if request.expects_reply:
            return StageAnswer.not_started()
        self._keep(request, place.target)
        return StageAnswer.queued(self._position(request.id))

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        """Note who has a broadcast."""
        self.part.tell(f"{self.name} is told that {message_id} reached {stages}")
        kept = self.part.kept[message_id]
        for place in self.part.places:
            if place.target in stages:
                kept.read_by.add(place.id)
                if place.live is not None and place.live.is_surely_live:
                    self.part.reached.append((message_id, place.live, place.live.wire))

    def _keep(self, request: StageRequest, target: str) -> None:
        if request.id not in self.part.kept:
            self.part.kept[request.id] = Kept(
                request.id,
                target,
                request.text,
                request.sender.id,
                request.sender_name,
                request.return_address,
                self.clock.now.wall,
            )

    def _position(self, message_id: str) -> int:
        return list(self.part.kept).index(message_id) + 1

    def _announce(self) -> None:
        assert self.core is not None
        if self.tasks or not self.is_online:
            return
        runs = self.core.commitments.runs
        if self.run is None or self.run.lost is not None:
            is_nested = self.run_id != _ROOT
            self.run = new_run(
                self.core.profile,
                runs,
                self.run_id,
                capability=_CAPABILITIES[self.run_id],
                dormant=self.chance.random() < 0.2,
                parent=_ROOT if is_nested else None,
                boundary=("below",) if is_nested else (),
                ids=self.core.new_id,
            )
        run = self.run
        roster = [
            RosterStage(id=place.id, name=place.name, running=place.live is not None)
            for place in self.part.places
            if place.run_id == self.run_id and (place.live is not None or self.chance.random() < 0.8)
        ]
        self.part.tell(f"{self.name} {self.pid} announces {[stage.id for stage in roster]}")
        operation = Announcement(runs, run, run.changed(roster, None), self.clock.now.mono + _TIMEOUT_MS)
        self.does(operation, lambda operation: self._announced(run, operation))

    def _announced(self, run: Run, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} is told of its run: {operation.error!r}")
        if operation.error is None:
            return
        if not isinstance(operation.error, IntercomError):
            raise Broken("errors-are-ours", repr(operation.error))
        if self.core is not None:
            self.core.commitments.runs.give_up(run, is_online=self.core.is_online)
        self.run = None

    def _tell(self) -> None:
        """Report what became of a message that is kept, under an id of its own."""
        assert self.core is not None and self.run is not None
        kept = self.part.kept[self.chance.choice(sorted(self.part.kept))]
        letter_id = f"about-{kept.id} by {self.name}"
        sent = self.account.letters.get(kept.id)
        if letter_id in [each.id for each in self.letters.values()] or sent is None:
            return
        letter = self.account.letters.get(letter_id) or Letter(
            letter_id, self.mailbox, sent.sender, may_be_given_up=True
        )
        letter.has_mailbox = letter.may_be_told = False
        operation = notify(
            self.run,
            kept.sender_id,
            text_of(letter),
            message_id=self.core.new_id(letter_id),
            now=self.clock.now.mono,
            wall=kept.wall,
            reply_to=kept.id,
            sender_name=kept.name,
            return_address=kept.address,
        )
        self._begin(operation, letter)


class Stage(Actor):
    """Be a stage: go live, read what was kept, then take what comes."""

    part: Runs
    place: Place
    stage: LiveStage | None = None
    live_by: Wire | None = None
    """The connection by which it was told that it is live."""

    @property
    def is_surely_live(self) -> bool:
        """Tell whether the connection by which it was told that it is live goes on."""
        wire = self.wire
        return wire is not None and wire is self.live_by and not (wire.broker_finished or wire.client_finished)

    @property
    def mailbox(self) -> str:
        """Return the stage it is, whoever it is."""
        return self.place.id

    @property
    def has_something_to_read(self) -> bool:
        """Tell whether something came, and it has begun or another one in its place: who has it keeps it."""
        live = self.place.live
        was_stage = self.part.world.is_calm and live is not None and self.stage is None
        return (live is self or was_stage) and super().has_something_to_read

    def start(self) -> None:
        """Begin as nobody."""
        self.stage = self.live_by = None
        super().start()

    def die(self) -> None:
        """Be gone, and with it the stage."""
        if self.place.live is self:
            self.place.live = None
        self.stage = self.live_by = None
        super().die()

    def steps(self) -> list[Callable[[], object]]:
        """Go live after a while, unless somebody is the stage."""
        found = super().steps()
        if self.core is not None and self.is_online and self.place.live is None and not self.tasks:
            found.append(self._try)
        return found

    def _try(self) -> None:
        self._look_at_place()
        if self.place.live is None and self.chance.random() < _PROMPT:
            self._go_live()

    def act(self) -> bool:
        """Take what came, answer it, or ask to be the stage beside who is."""
        assert self.core is not None
        self._look_at_place()
        if self.place.live is not self:
            self._go_live()
            return True
        message = self.in_hand
        if message is not None and message.expects_reply and self.chance.random() < 0.6:
            letter = self.part.world.letter(self, self.account.letters[message.id].sender)
            letter.answers, letter.may_be_given_up = message.id, True
            self.place.done.add(message.id)
            self.reply(letter)
        elif self.chance.random() < 0.05:
            self.close(finished=True)
        else:
            self.take()
        return True

    def end_matters(self) -> bool:
        """Be live, unless another one is."""
        if self.core is None or self.tasks:
            return False
        self._look_at_place()
        if self.place.live is self and self.is_online:
            self.part.read_kept(self)
        return self.place.live is None and self._go_live()

    def sees(self, message: IncomingMessage) -> None:
        """Be shown a message, which may have been read before by who was the stage."""
        if message.id in self.part.broadcasts:
            if message.id not in self.place.done:
                self.place.done.add(message.id)
                self.part.saw(self, message.id, message.text)
            return
        if message.id in self.place.done:
            self.part.tell(f"{self.name} {self.pid} knows {message.id}")
            return
        letter = self.account.shown(self.mailbox, self.pid, message)
        if letter is not None:
            self.part.keeps_order(self, letter)

    def is_done_with(self, message: IncomingMessage) -> None:
        """Note that it is part of the stage's work."""
        if message.id not in self.part.broadcasts:
            self.place.done.add(message.id)
            super().is_done_with(message)

    def _look_at_place(self) -> None:
        """Look whether it is the stage, or after a while again, or no longer."""
        if self.stage is None:
            return
        if self.stage.lost is None:
            self.place.live = self.place.live or self
            return
        self.part.tell(f"{self.name} {self.pid} is {self.place.id} no longer: {self.stage.lost}")
        self.stage = self.live_by = None
        if self.place.live is self:
            self.place.live = None

    def _go_live(self) -> bool:
        assert self.core is not None
        if self.tasks or self.stage is not None or not self.is_online:
            return False
        place, commitments = self.place, self.core.commitments
        stage = new_stage(
            self.core.profile, commitments.stage, place.run_id, place.id, place.name, _CAPABILITIES[place.run_id]
        )
        moment = self.account.moment()
        self.part.tell(f"{self.name} {self.pid} asks to be {place.id}")
        operation = GoingLive(commitments.stage, stage, self.clock.now.mono + _TIMEOUT_MS)
        self.does(operation, lambda operation: self._told(stage, moment, operation))
        return True

    def _told(self, stage: LiveStage, moment: int, operation: Operation[Any]) -> None:
        self.part.tell(f"{self.name} {self.pid} is told whether it is {self.place.id}: {operation.error!r}")
        if operation.error is None:
            self.stage = stage
            self.part.began(self, moment)
        elif not isinstance(operation.error, IntercomError):
            raise Broken("errors-are-ours", repr(operation.error))
        elif self.core is not None:
            self.core.leave_stage(stage)


class Writer(Actor):
    """Write to stages by their ids, by their names, and to several at once."""

    part: Runs

    def act(self) -> bool:
        """Write something."""
        part = self.part
        if self.chance.random() < 0.3 or len(part.letters) + len(part.broadcasts) >= _LETTERS:
            return False
        luck = self.chance.random()
        if luck < 0.25:
            self._write_to_all()
            return True
        place = self.chance.choice(part.places)
        letter = Letter(part.name("w"), self.mailbox, place.id, writer=self.session, may_be_given_up=True)
        part.letters.append(letter)
        self._write_to(letter, place.target if luck < 0.7 else place.parsed.with_last(place.name), asks=luck > 0.85)
        return True

    def end_matters(self) -> bool:
        """Write to every stage that is there, until it has that."""
        if self.core is None or self.letters or self.role.is_apart:
            return False
        for place in self.part.places:
            last = self.part.last[place.id]
            is_live = place.live is not None and place.live.is_online
            if last and self.clock.now.mono - self.part.begun[last[-1].id] < _AGAIN_MS:
                continue
            if is_live and len(last) < _LAST and all(letter.outcome != "delivered" for letter in last):
                letter = Letter(self.part.name("last"), self.mailbox, place.id, may_be_given_up=True)
                last.append(letter)
                self._write_to(letter, place.target)
                return True
        return False

    def _write_to(self, letter: Letter, target: str, *, asks: bool = False) -> None:
        assert self.core is not None
        now = self.clock.now
        self.part.begun.setdefault(letter.id, now.mono)
        message_id = self.core.new_id(letter.id)
        operation: Operation[Any]
        if asks:
            letter.is_ask = True
            operation = commands.ask(
                target, text_of(letter), message_id=message_id, now=now.mono, wall=now.wall, timeout_ms=20_000
            )
        else:
            operation = commands.send(target, text_of(letter), message_id=message_id, now=now.mono, wall=now.wall)
        self._begin(operation, letter)
        self.past = [each for each in self.past if each[0] is not letter]  # it is sent to a stage, or not at all

    def _write_to_all(self) -> None:
        assert self.core is not None
        now = self.clock.now
        message_id = self.part.name("b")
        target = f"{_GROUP}/{self.chance.choice(('st-*', '**', f'{_NESTED}/*', '**/st-2'))}"
        broadcast = self.part.broadcasts[message_id] = Broadcast(message_id, target)
        self.part.begun[message_id] = now.mono
        self.part.tell(f"{self.name} writes {message_id} to {target}")
        operation = commands.send(
            target, _text_to_all(message_id), message_id=self.core.new_id(message_id), now=now.mono, wall=now.wall
        )
        self.does(operation, lambda operation: self._told(broadcast, operation))

    def _told(self, broadcast: Broadcast, operation: Operation[Any]) -> None:
        error = operation.error
        self.part.tell(f"{self.name} is told of {broadcast.id}: {operation.result or repr(error)}")
        if error is None:
            broadcast.is_kept = True
        elif not isinstance(error, IntercomError):
            raise Broken("errors-are-ours", repr(error))
        elif isinstance(error, SendError) and not isinstance(error, OutcomeUnknown | MessageConflict):
            broadcast.is_refused = True
            if broadcast.seen:
                raise Broken("refused-is-true", f"{broadcast.id} was seen by {broadcast.seen}, and then: {error!r}")


def _text_to_all(message_id: str) -> str:
    return f"{message_id} to all"
