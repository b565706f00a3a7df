"""Turn payloads into frames and frames into bytes; decide what is a protocol error and what an in-band refusal.

A frame is decoded once, by msgspec, and its inner message stays the bytes that came. What msgspec refuses is tried
once more as the standard parser reads it; only then a message is encoded again. What leaves this module is valid
UTF-8 and JSON that every other parser reads.

To make a decoder for every frame there is takes longer than anything else at the start of a process. So each direction
begins with one for the frames of any plain session, reads a few others one by one, and makes that for all frames when
more of them come. What is needed for odd frames alone is loaded with the first of them, or with the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, cast, get_args

from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType, ValidationError, convert
from msgspec.json import Decoder, Encoder, decode

from intercom.limits import (
    GREAT_NUMBERS,
    NESTING,
    NESTING_ADDED,
    QUOTED_CHARS,
    RARE_FRAMES,
    REQUEST_ID_CHARACTERS,
)
from intercom.wire.frames import (
    Attachment,
    BadRequest,
    Content,
    Delivered,
    DeliveryFailed,
    Health,
    HealthRequest,
    ListSessions,
    Malformed,
    Message,
    MessageFrame,
    PresenceUpdate,
    Queued,
    Received,
    Register,
    Registered,
    Send,
    SessionJoined,
    SessionLeft,
    Sessions,
    Source,
    Unregister,
)
from intercom.wire.framing import ProtocolError as ProtocolError
from intercom.wire.framing import frame as framed
from intercom.wire.framing import header
from intercom.wire.jsontext import (
    HARMLESS_BYTES,
    as_utf8,
    flaw_of,
    read,
    with_whole_characters,
    without_surrogates,
    written,
)
from intercom.wire.shapes import AnswerFrame, FeatureAnswer, FeatureRequest, RequestFrame

if TYPE_CHECKING:
    from intercom.wire.unions import Answer, Request

_AnyFrame = TypeVar("_AnyFrame")
_PlainNumber: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float


class _PlainSource(Source, forbid_unknown_fields=True, kw_only=True):
    subagent_index: _PlainNumber | UnsetType = UNSET


class _PlainAttachment(Attachment, forbid_unknown_fields=True):
    pass


class _PlainContent(Content, forbid_unknown_fields=True, kw_only=True):
    attachments: list[_PlainAttachment] | UnsetType = UNSET  # type: ignore[assignment]


class _PlainMessage(Message, forbid_unknown_fields=True, kw_only=True):
    """Accept only messages without unknown members: msgspec has then seen every number in them.

    This saves all others a second look; messages with unknown members are rare.
    """

    timestamp: _PlainNumber
    content: _PlainContent
    source: _PlainSource | UnsetType = UNSET


_LEAST_OF_NUMBERS = GREAT_NUMBERS * len("1e290,")
"""A shorter payload does not hold too many great numbers."""
ANSWERED_IN_BAND = frozenset(
    {"send", "supervisor_send", "presence", "join_group", "leave_group", "send_pending_stage_notification"}
)
"""Frame types whose members may be wrong without a protocol error (protocol 4.5 to 4.9, 4.17)."""


def decode_request(payload: bytes) -> Request | Malformed | BadRequest:
    """Decode what a client wrote.

    A frame of the types in ``ANSWERED_IN_BAND`` whose JSON is fine and whose members are not comes back as
    ``Malformed``, a request of a feature that can still be answered as ``BadRequest``. ``Send.message`` is JSON, and a
    message only when ``parse_message`` says so.

    Raises:
        ProtocolError: everything else, with a sentence that names the rule.
    """
    try:
        if not payload.isascii():
            payload = as_utf8(payload)
        if len(payload) > HARMLESS_BYTES:
            _check_shape(payload)
        return _request_of(payload)
    except _REFUSALS:
        if (rare := _REQUESTS.decode_rare(payload)) is not None:
            return rare
        if _REQUESTS.widen():
            return decode_request(payload)
        return _second_try(payload, _REQUESTS, ANSWERED_IN_BAND)


def request_in_steps(payload: bytes) -> Iterator[Request | Malformed | BadRequest | None]:
    """Decode what a client wrote as ``decode_request`` does, step by step: nothing before what it is.

    A large frame takes tens of milliseconds, in which somebody who waits between the steps serves others.

    Raises:
        ProtocolError: as there.
    """
    try:
        if not payload.isascii():
            payload = as_utf8(payload)
        flaw = flaw_of(payload)
        yield None
        _refuse(flaw or _many_great_numbers(payload))
        yield None
    except MemoryError as error:
        raise ProtocolError(_TOO_LARGE) from error
    _REQUESTS.widen()
    frame: Request | Malformed | BadRequest
    try:
        frame = _request_of(payload)
    except _REFUSALS:
        yield None
        mended = with_whole_characters(payload)
        yield None
        frame = _second_try(payload, _REQUESTS, ANSWERED_IN_BAND, mended)
    yield None  # what is done with it may take as long
    yield frame


def _request_of(payload: bytes) -> Request:
    request = _REQUESTS.decode(payload)
    if request.__class__ is Register:
        _check_numbers(payload)  # peers are shown members of a session that no struct describes
    return request


def decode_answer(payload: bytes) -> Answer:
    """Decode what the broker wrote.

    Raises:
        ProtocolError: it is no frame, or of a type this client does not know.
    """
    try:
        if not payload.isascii():
            payload = as_utf8(payload)
        if len(payload) > HARMLESS_BYTES:
            _check_shape(payload, NESTING + NESTING_ADDED)
        return _ANSWERS.decode(payload)
    except _REFUSALS:
        if (rare := _ANSWERS.decode_rare(payload)) is not None:
            return rare
        if _ANSWERS.widen():
            return decode_answer(payload)
        return cast("Answer", _second_try(payload, _ANSWERS, frozenset()))


def parse_message(raw: Raw | bytes) -> Message | None:
    """Validate the message inside a decoded frame; ``None`` when it breaks the table of protocol 4.

    A number beyond a double breaks it wherever it stands: not every recipient could read it.
    """
    try:
        return _PLAIN_MESSAGES.decode(raw)
    except _REFUSALS:
        pass
    from intercom.wire.numbers import flaw_of_numbers
    from intercom.wire.outline import has_many_values, last_members

    text = bytes(raw)
    try:
        message = _MESSAGES.decode(text)
    except _REFUSALS:
        message = None
    try:
        if message is None:
            if not has_many_values(text):
                return message_of(read(text))
            message = _MESSAGES.decode(last_members(text, Message))
        return message if flaw_of_numbers(text) is None else None
    except _REFUSALS:
        return None


def message_of(value: object) -> Message | None:
    """Validate a message that is decoded already, such as a member of ``Malformed.fields``."""
    try:
        return convert(value, Message)
    except ValidationError:
        return None


def encode(frame: Struct) -> bytes:
    """Encode a request or an answer as a whole frame, header included.

    Numbers that are not finite become ``null``, lone surrogates (undecodable bytes of an argument or a path)
    U+FFFD. ``Raw`` members go out as they are.
    """
    try:
        payload = _encode(frame)
        return header(len(payload)) + payload
    except UnicodeEncodeError:
        return framed(_encode(without_surrogates(frame)))


def _check_shape(payload: bytes, levels: int = NESTING) -> None:
    _refuse(flaw_of(payload, levels) or _many_great_numbers(payload))


def _many_great_numbers(payload: bytes) -> str | None:
    """Say so when there are too many, before any of them is read."""
    if len(payload) <= _LEAST_OF_NUMBERS or payload.count(b",") < GREAT_NUMBERS:
        return None
    from intercom.wire.numbers import TOO_MANY, has_too_many

    return TOO_MANY if has_too_many(payload) else None


def _check_numbers(payload: bytes) -> None:
    from intercom.wire.numbers import flaw_of_numbers

    _refuse(flaw_of_numbers(payload))


def _refuse(flaw: str | None) -> None:
    if flaw is not None:
        raise ProtocolError(f"{_NOT_JSON}: {flaw}")


def _second_try(
    payload: bytes, direction: _Direction[_AnyFrame], in_band: frozenset[str], mended: bytes | None = None
) -> _AnyFrame | Malformed | BadRequest:
    """Decode what msgspec refused, without half characters or as the standard parser reads it, or say what is wrong."""
    if mended is None:
        mended = with_whole_characters(payload)
    if mended != payload:
        try:
            frame = direction.decode(mended)
            if frame.__class__ is Register:
                _check_numbers(mended)
            return frame
        except _REFUSALS:
            pass
    from intercom.wire.outline import has_many_values, read_outermost

    try:
        is_outline = has_many_values(mended)
        if is_outline:
            value, normalised = read_outermost(mended, direction.types)
        else:
            value = read(payload)
        if not isinstance(value, dict):
            raise ProtocolError(f"The payload is not a JSON object but {_KINDS[type(value)]}")
        if not is_outline:
            normalised = written(value)
        try:
            return direction.decode(normalised)
        except ValidationError as error:
            kind = value.get("type", UNSET)
            if not isinstance(kind, str):
                found = "no type" if kind is UNSET else f"{_KINDS[type(kind)]} as its type"
                raise ProtocolError(f"The payload has {found}; a frame names its type in a string") from error
            if kind not in direction.types:
                raise ProtocolError(f"Unknown frame type '{_one_line(kind)}'") from error
            if kind in in_band:
                return Malformed(cast("Any", kind), value if is_outline else read(normalised))
            request_id = value.get("requestId")
            if (
                kind in direction.requests
                and isinstance(request_id, str)
                and 0 < len(request_id) <= REQUEST_ID_CHARACTERS
            ):
                return BadRequest(kind, request_id, _one_line(str(error)))
            raise ProtocolError(f"A {kind} frame breaks its rules: {_one_line(str(error))}") from error
    except ValueError as error:
        raise ProtocolError(f"{_NOT_JSON}: {_one_line(str(error))}") from error
    except (RecursionError, MemoryError) as error:
        raise ProtocolError(_TOO_LARGE) from error


def _one_line(text: str) -> str:
    """Make text of a peer fit to be shown: short, and without control characters."""
    if len(text) > QUOTED_CHARS:
        text = text[:QUOTED_CHARS] + "..."
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


class _Lazily(Generic[_AnyFrame]):
    """Decode one kind of thing; what does it is made when the first one comes."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.decode: Callable[[Raw | bytes], _AnyFrame] = self._decode_first

    def _decode_first(self, payload: Raw | bytes) -> _AnyFrame:
        self._decode_from_now(self._kind)
        return self.decode(payload)

    def _decode_from_now(self, kind: Any) -> None:
        self.decode = cast("Callable[[Raw | bytes], _AnyFrame]", Decoder(kind).decode)


class _Tagged(Struct):
    """Read of a frame only what it is."""

    type: str


class _Direction(_Lazily[_AnyFrame]):
    """Decode what one side writes: at first only what any plain session uses, once widened every frame there is."""

    def __init__(
        self, everyday: Any, bases: tuple[type[Struct], ...], everything: Callable[[], tuple[Any, Any]]
    ) -> None:
        super().__init__(everyday)
        self._bases = bases
        self._rare_left = RARE_FRAMES
        self._everything: Callable[[], tuple[Any, Any]] | None = everything
        self.types: dict[str, type[Struct]] = {}
        self.requests: dict[str, type[Struct]] = {}
        """Types of the requests of features."""

    def decode_rare(self, payload: bytes) -> _AnyFrame | None:
        """Decode one of the first few frames that a plain session does not use, if its type is loaded.

        A command that waits for such an answer has loaded its type, and needs no decoder for all the others.
        """
        self._rare_left -= 1
        if self._everything is None or self._rare_left < 0:
            return None
        try:
            tag = decode(payload, type=_Tagged).type
            found = next((kind for kind in _loaded(self._bases) if kind.__struct_config__.tag == tag), None)
            return None if found is None else cast("_AnyFrame", decode(payload, type=found))
        except _REFUSALS:
            return None

    def widen(self) -> bool:
        """Decode every frame from now on; tell whether that is new."""
        if self._everything is None:
            return False
        union, requests = self._everything()
        self.types, self.requests = _types(union), _types(requests)
        self._decode_from_now(union)
        self._everything = None
        return True


def _loaded(bases: Iterable[type[Struct]]) -> Iterator[type[Struct]]:
    """Give the types of frames that are loaded so far; a base has its own name for a tag, and no frame a capital."""
    for base in bases:
        for kind in base.__subclasses__():
            if str(kind.__struct_config__.tag).islower():
                yield kind
            yield from _loaded((kind,))


def _types(union: Any) -> dict[str, type[Struct]]:
    return {member.__struct_config__.tag: member for member in get_args(union)}


def _all_requests() -> tuple[Any, Any]:
    from intercom.wire.unions import FeatureRequests, Request

    return Request, FeatureRequests


def _all_answers() -> tuple[Any, Any]:
    from intercom.wire.unions import Answer

    return Answer, None


_REQUESTS: _Direction[Request] = _Direction(
    Register | Unregister | ListSessions | Send | Received | HealthRequest,
    (RequestFrame, FeatureRequest),
    _all_requests,
)
_ANSWERS: _Direction[Answer] = _Direction(
    Registered
    | Sessions
    | MessageFrame
    | Delivered
    | DeliveryFailed
    | Queued
    | SessionJoined
    | SessionLeft
    | PresenceUpdate
    | Health,
    (AnswerFrame, FeatureAnswer),
    _all_answers,
)
_PLAIN_MESSAGES: _Lazily[_PlainMessage] = _Lazily(_PlainMessage)
_MESSAGES: _Lazily[Message] = _Lazily(Message)
_encode = Encoder().encode

_REFUSALS = (MsgspecError, ValueError, RecursionError, MemoryError)
"""How a parser says that it does not take its input, or cannot in what the caller has left of the stack."""
_NOT_JSON = "The payload is not valid JSON"
_TOO_LARGE = f"{_NOT_JSON}: it does not fit into stack or memory"
_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
