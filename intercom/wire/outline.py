"""Read what a frame of very many values is, and what stands outermost in it, instead of every value.

To read a million values takes most of a second, in which a broker would serve nobody. A frame that is right is not
read so: msgspec passes over what its type does not name. But one that is wrong has to be named, and answered with what
it says of itself, as does a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, defstruct
from msgspec.json import Decoder, decode, encode

from intercom.limits import READ_VALUES
from intercom.wire.jsontext import read
from intercom.wire.numbers import flaw_of_numbers
from intercom.wire.shapes import Content, Message, Source

_ARRAY = [None]
_OBJECT = {"": None}
_PARTS: dict[str, type[Struct]] = {"content": Content, "source": Source}


def has_many_values(text: bytes) -> bool:
    """Tell whether a JSON text may hold more than READ_VALUES values: each follows a comma or a bracket, or a name."""
    return len(text) > READ_VALUES and len(text) - len(text.translate(None, b",[{")) > READ_VALUES


def read_outermost(payload: bytes, shapes: Mapping[str, type[Struct]]) -> tuple[Any, bytes | Raw]:
    """Return of a frame of many values what stands outermost in it, and the same frame as it is to be decoded again.

    Args:
        payload: without half characters.
        shapes: types of frames by their names.

    Raises:
        ValueError: it is not JSON, or a number is beyond a double.
    """
    try:
        head = members_of(payload, ("type",))
        if head is None:
            decode(payload, type=Raw)
    except DecodeError as error:
        byte = re.search(r"\d+", str(error))
        if byte and int(byte[0]) < READ_VALUES:
            read(payload)  # the standard parser gives up there too, and says more
        raise ValueError(str(error)) from error
    flaw = flaw_of_numbers(payload)
    if flaw is not None:
        raise ValueError(flaw)
    if head is None:
        return value_of(payload), payload
    kind = value_of(head["type"]) if "type" in head else UNSET
    shape = shapes.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return {name: value_of(member) for name, member in head.items()}, payload
    is_strict = shape.__struct_config__.forbid_unknown_fields
    text = payload if is_strict else last_members(payload, shape)
    return outline_of(text, shape), text


def members_of(text: bytes | Raw, names: Sequence[str]) -> dict[str, Raw] | None:
    """Return the members of these names as they are written, of repeated ones the last; None when it is no object.

    Raises:
        DecodeError: it is no JSON.
    """
    try:
        found = _reader(tuple(names)).decode(text)
    except ValidationError:
        return None
    members = zip(names, (getattr(found, name) for name in found.__struct_fields__), strict=True)
    return {name: member for name, member in members if member is not UNSET}


def outline_of(text: bytes | Raw, shape: type[Struct]) -> dict[str, Any] | None:
    """Return the members that a shape names, each as ``value_of`` returns it; None when the text is no object.

    A message of many values among them is an outline itself.
    """
    members = members_of(text, ("type", *shape.__struct_encode_fields__))
    if members is None:
        return None
    outline = {name: value_of(member) for name, member in members.items()}
    if outline.get("message") is _OBJECT:
        outline["message"] = outline_of(members["message"], Message)
    return outline


def last_members(text: bytes | Raw, shape: type[Struct]) -> Raw:
    """Return a JSON text with nothing but the members that a shape names, of repeated ones the last.

    What stands in the content or the source of a message is treated so too.
    """
    members = members_of(text, ("type", *shape.__struct_encode_fields__))
    if members is None:
        return Raw(text)
    if shape is Message:
        for name, part in _PARTS.items():
            if name in members:
                members[name] = last_members(members[name], part)
    return Raw(encode(members))


def value_of(text: bytes | Raw) -> Any:
    """Return the value of a JSON text, or something of its kind with nothing right in it when it has many values."""
    text = bytes(text)
    if not has_many_values(text):
        return json.loads(text.decode())
    return _ARRAY if text.lstrip()[:1] == b"[" else _OBJECT


@cache
def _reader(names: tuple[str, ...]) -> Decoder[Struct]:
    fields = [(f"member_{number}", Raw | UnsetType, UNSET) for number in range(len(names))]
    rename = {f"member_{number}": name for number, name in enumerate(names)}
    return Decoder(defstruct("Members", fields, rename=rename))
