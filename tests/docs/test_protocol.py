"""Keep ``docs/protocol.md`` true: its tables against the structs, the limits and the reasons they speak of."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib.resources import files
from typing import Any, get_args

import pytest

from intercom import limits
from intercom.core import (
    addresses,
    arrivals,
    commands,
    desk,
    features,
    flow_changes,
    flow_reports,
    flow_requests,
    flow_validation,
    following,
    giving,
    handing,
    inquiries,
    invocation_requests,
    invocation_texts,
    linkdesk,
    links,
    outbox_requests,
    peeking,
    registering,
    replies,
    spawning,
    watches,
)
from intercom.core.invocations import RUN
from intercom.limits import Limits
from intercom.wire import notices, reasons
from intercom.wire.schema import schema
from intercom.wire.unions import Answer, Request
from intercom.wire.work import ProcessingState
from tests.core.harness import World
from tests.support.brokers import TOP, BrokerProcess
from tests.support.raw import PATIENCE_S, RawClient
from tests.support.vectors import VECTORS, transcript

DOCS = files("intercom") / "docs"
TEXT = (DOCS / "protocol.md").read_text("utf-8")
DEFINITIONS: dict[str, Any] = schema()["$defs"]
MEMBER_TABLE = ["member", "type", "required", "meaning"]


def sections() -> dict[str, str]:
    """Return the text under every heading of the page, by heading."""
    parts = re.split(r"^#{2,4} (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SECTIONS = sections()


def tables(text: str, head: list[str]) -> list[list[list[str]]]:
    """Return the rows of every table in ``text`` with these column names."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()]
        if [cell.strip() for cell in block.splitlines()[0].strip("|").split("|")] == head:
            found.append(rows[2:])
    return found


def code(cell: str) -> str:
    """Return what stands in a cell that is one code span."""
    match = re.fullmatch("`([^`]+)`", cell)
    assert match is not None, cell
    return match[1]


# --- the example ----------------------------------------------------------------------------------------


def test_the_client_of_the_page_sends_and_reports_refusals(broker: BrokerProcess) -> None:
    [program] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

    def sent(target: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-X", "dev", "-c", program, str(broker.socket), target, "hello"]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S)

    with RawClient(broker.socket) as bob:
        bob.register("bob")
        result = sent("bob")
        assert (result.returncode, result.stderr) == (0, "")
        message = bob.expect("message")
        assert (message["from"]["name"], message["message"]["content"]) == ("tiny", {"text": "hello"})
    assert (sent("nobody").returncode, sent("nobody").stderr) == (1, "Session not found\n")


# --- frames and objects ---------------------------------------------------------------------------------


OTHER_NAMES = {
    "SessionObject": "SessionInfo",
    "SessionInfo": "Session",
    "MessageObject": "Message",
    "MailboxName": "MailboxOf",
}
"""Structs that the page calls otherwise."""


def struct_name(heading: str) -> str | None:
    """Return the definition a heading of the page describes, if it does."""
    tag = re.fullmatch(r"(?:[45]\.\d+ )?`(\w+)`", heading)
    if tag is None:
        name = "".join(word.capitalize() for word in heading.split())
        name = OTHER_NAMES.get(name, name)
        return name if name in DEFINITIONS else None
    union = Request if heading.startswith("4") else Answer
    return str(next(frame.__name__ for frame in get_args(union) if frame.__struct_config__.tag == tag[1]))


DESCRIBED = {heading: name for heading in SECTIONS if (name := struct_name(heading)) is not None}


def words(name: str) -> str:
    """Return how the page speaks of a definition."""
    known = {struct: heading for heading, struct in OTHER_NAMES.items()}
    name = known.get(name, name)
    return re.sub("(?<!^)([A-Z])", r" \1", name).lower()


def type_of(rule: dict[str, Any]) -> str:
    """Return how the page writes the type of a member."""
    if not rule:
        return "any"
    if rule == {"not": {}}:
        return "never"
    if "const" in rule:
        return f"`{json.dumps(rule['const'])}`"
    if "enum" in rule:
        values = [f'`"{value}"`' for value in rule["enum"]]
        return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    if "$ref" in rule:
        return words(rule["$ref"].rpartition("/")[2])
    if rule == {"anyOf": [{"type": "integer"}, {"type": "number"}]}:
        return "number"
    if rule["type"] == "array":
        return type_of(rule["items"]) + "[]"
    if rule.get("pattern") == "\\S":
        return f"{rule['type']}, not blank"
    if rule.get("minLength") == 1 or rule.get("required") is not None:
        return "supervisor claim" if rule["type"] == "object" else f"{rule['type']}, not empty"
    return str(rule["type"])


def is_tag(name: str, rule: dict[str, Any]) -> bool:
    """Tell whether a member only says which frame or object it is."""
    return name in ("type", "kind") and len(rule.get("enum", ())) == 1


def members(heading: str) -> dict[str, tuple[str, str]]:
    """Return type and requiredness of every member a section of the page lists."""
    found = tables(SECTIONS[heading], MEMBER_TABLE)
    rows = found[0] if found else []
    return {code(row[0]): (row[1], row[2]) for row in rows}


@pytest.mark.parametrize("heading", DESCRIBED)
def test_a_table_says_what_the_struct_says(heading: str) -> None:
    definition = DEFINITIONS[DESCRIBED[heading]]
    required = definition.get("required", [])
    told = {
        name: (type_of(rule), "yes" if name in required else "no")
        for name, rule in definition["properties"].items()
        if not is_tag(name, rule)
    }
    assert members(heading) == told


def test_the_claim_of_a_child() -> None:
    """It has no struct: a wrong one is refused in-band."""
    rule = DEFINITIONS["Register"]["properties"]["supervisor"]
    told = {name: (type_of(each), "yes") for name, each in rule["properties"].items()}
    assert members("Supervisor claim") == told
    assert set(rule["required"]) == set(told)


@pytest.mark.parametrize(("part", "union"), [("4", Request), ("5", Answer)])
def test_every_frame_has_its_section_and_no_other_has(part: str, union: Any) -> None:
    numbered = [heading for heading in SECTIONS if re.fullmatch(rf"{part}\.\d+ `\w+`", heading)]
    tags = [heading.split("`")[1] for heading in numbered]
    known = {frame.__struct_config__.tag for frame in get_args(union)}
    assert set(tags) == known - {"error"}
    assert len(set(tags)) == len(tags)


def test_every_object_inside_frames_is_described() -> None:
    frames = {frame.__name__ for frame in (*get_args(Request), *get_args(Answer))}
    assert set(DEFINITIONS) - frames - {"Request", "Answer"} <= set(DESCRIBED.values())


@pytest.mark.parametrize(("part", "union"), [("4", Request), ("5", Answer)])
def test_the_structs_name_the_section_of_their_frame(part: str, union: Any) -> None:
    for frame in get_args(union):
        tag = frame.__struct_config__.tag
        if tag == "error":
            continue
        [heading] = [heading for heading in SECTIONS if re.fullmatch(rf"{part}\.\d+ `{tag}`", heading)]
        assert f"(protocol {heading.split()[0]})" in (frame.__doc__ or ""), frame


def test_who_may_be_written_what_names_every_frame_once() -> None:
    """protocol 5.30"""
    [rows] = tables(SECTIONS["5.30 What older clients never see"], ["type", "written to"])
    told = [tag for row in rows for tag in re.findall("`([a-z_]+)`", row[0])]
    assert sorted(told) == sorted(
        frame.__struct_config__.tag for frame in get_args(Answer) if frame.__name__ != "ErrorFrame"
    )


def test_the_schema_beside_the_page_is_the_one_that_is_made() -> None:
    shipped = (DOCS / "protocol.schema.json").read_text("utf-8")
    assert shipped == json.dumps(schema(), indent=2) + "\n", "`intercom schema wire` prints it"


# --- refusals -------------------------------------------------------------------------------------------

FILLED = {
    "conflict": reasons.conflict("<id>"),
    "conflict_waiting": reasons.conflict_waiting("<id>"),
    "ambiguous_away": reasons.ambiguous_away("<to>", ["<group>"], ["<id>"], ["<to>@<node>"]),
    "ambiguous_name": reasons.ambiguous_name("<to>", ["<to>@<node>"]),
    "ambiguous_prefix": reasons.ambiguous_prefix("<to>"),
    "authority_invalid": reasons.authority_invalid("<trouble>"),
    "removed_target_form": reasons.removed_target_form("<target>"),
    "capacity": reasons.capacity("<what>", 1000).replace(" 1 s", " <n> s"),
    "ambiguous_restoring": reasons.ambiguous_restoring("<to>"),
    "too_many_routes": reasons.too_many_routes(1234).replace("1234", "<n>"),
    "roster_too_large": reasons.roster_too_large(1234).replace("1234", "<n>"),
    "reserved_group": reasons.reserved_group("<name>"),
    "away": reasons.away("<name>"),
    "away_unqueued": reasons.away_unqueued("<name>"),
    "mailbox_full": reasons.mailbox_full("<name>", 1000).replace(" 1 s", " <n> s"),
    "would_deadlock": reasons.would_deadlock("<target>", ["<name>"]),
    "loop_too_long": reasons.loop_too_long(1234).replace("1234", "<n>"),
    "loop_too_fast": reasons.loop_too_fast(1000).replace(" 1 s", " <n> s"),
    "kept_unqueued": reasons.kept_unqueued("quiet").replace("without waking it", "<how>"),
    "kept_ask": reasons.kept_ask("hold").replace("until the person lets them through", "<how>"),
    "unconfirmed": reasons.unconfirmed("<reason>"),
    "unknown": reasons.unknown("<reason>"),
    "inbox_full": reasons.inbox_full(1000).replace(" 1 s", " <n> s"),
}
"""What the functions of ``reasons`` write, with the placeholders of the page."""


BEGINNINGS = frozenset({"CAPACITY", "MAILBOX_FULL", "INBOX_FULL", "SEVERAL_AWAY"})
"""Parts of texts that stand alone in ``reasons``."""
READING = frozenset({"code_of", "in_doubt", "behind", "is_unknown"})
"""Functions of ``reasons`` that make no text of their own."""


def refusal_texts() -> set[str]:
    written = {
        text
        for name, text in vars(reasons).items()
        if name.isupper() and name[0] != "_" and name not in BEGINNINGS and isinstance(text, str)
    }
    return written | set(FILLED.values())


def test_every_text_is_listed_and_no_other() -> None:
    """protocol 5.29, 4.5"""
    listed = [code(row[0]) for rows in tables(SECTIONS["5.29 Refusals"], ["text", "code", "when"]) for row in rows]
    listed += [code(row[0]) for rows in tables(SECTIONS["5.29 Refusals"], ["text", "when"]) for row in rows]
    assert len(listed) == len(set(listed))
    assert set(listed) == refusal_texts() - {FILLED["reserved_group"]}
    assert FILLED["reserved_group"] in SECTIONS["4.5 `presence`"]


def test_no_text_of_a_function_is_forgotten() -> None:
    made = {name for name, each in vars(reasons).items() if inspect.isfunction(each)} - READING
    assert made == set(FILLED)


def test_the_codes_are_those_of_our_client() -> None:
    for rows in tables(SECTIONS["5.29 Refusals"], ["text", "code", "when"]):
        for text, short, _ in rows:
            assert code(short) == reasons.code_of(code(text))


def test_the_codes_on_the_wire() -> None:
    """protocol 5.29"""
    rule = DEFINITIONS["DeliveryFailed"]["properties"]["reasonCode"]
    assert set(rule["enum"]) == {"away", "message_id_conflict", "session_not_found"}
    [rows] = tables(SECTIONS["6.12.5 Live stages"], ["code", "condition"])
    named = re.search(r"`registration_failed.code`, one of(.+?)\(6\.12\.5\)", SECTIONS["5.29 Refusals"], re.DOTALL)
    assert named is not None
    assert {code(row[0]) for row in rows} == set(re.findall("`([a-z_]+)`", named[1]))


def codes_in(*modules: Any, pattern: str) -> set[str]:
    """Return what the core refuses requests of features with."""
    return {found for module in modules for found in re.findall(pattern, inspect.getsource(module))}


def codes_of(heading: str) -> set[str]:
    [rows] = tables(SECTIONS[heading], ["code", "when", "what a client does"])
    return {code(row[0]) for row in rows}


def test_the_codes_of_features() -> None:
    """protocol 9.1.3, 9.4.2, 9.6.2"""
    refused = codes_in(features, addresses, arrivals, pattern=r'Refused\(\s*"(\w+)"')
    refused |= codes_in(registering, pattern=r'RegistrationFailed\([\w.]+, "(\w+)"')
    assert codes_of("9.1.3 Refused registrations") == refused
    reattach = codes_in(arrivals, pattern=r'_no\(\s*frame,\s*"(\w+)"')
    reattach |= codes_in(registering, pattern=r'RequestFailed\((?:\w+\.)?request_id, "(\w+)"')
    assert codes_of("9.4.2 Coming back") == reattach | {"bad_request"}
    assert codes_of("9.6.2 Refused requests") == codes_in(
        inquiries, peeking, outbox_requests, giving, pattern=r'No\(\s*"(\w+)"'
    )


def test_the_codes_of_following_and_starting() -> None:
    """protocol 11.3"""
    refused = codes_in(watches, following, spawning, pattern=r'(?:No\(|frame, |request_id, )"(\w+)"')
    statuses = set(DEFINITIONS["SpawnStatus"]["properties"]["status"]["enum"])
    assert codes_of("11.3 Refusals") == refused - statuses | {"bad_request"}
    ends = codes_in(spawning, pattern=r'(?:_end\(order, |"code": )"(\w+)"')
    assert ends == set(re.findall(r"`(spawn_(?!status)\w+)`", SECTIONS["11.3 Refusals"].split("In `spawn_status`")[1]))
    [rows] = tables(SECTIONS["11.1.5 Ends"], ["reason", "when", "what a client does"])
    assert {code(row[0]) for row in rows} == set(DEFINITIONS["WatchEnded"]["properties"]["reason"]["enum"])


def test_the_features_and_what_they_open() -> None:
    """protocol 9.1.1, 9.6.1"""
    [rows] = tables(SECTIONS["9.1.1 Asking and granting"], ["feature", "what it opens", "granted"])
    names = {features.PUSH_RECEIPTS, features.LIFECYCLE, features.ADDRESS, features.QUEUE, features.OPERATOR}
    names |= {features.WAITS, features.POLICY}
    names |= {features.INBOX, features.WORK, features.COORDINATOR, features.FOREGROUND}
    names |= {features.WATCH, features.LINK, features.INVOKE}
    assert {code(row[0]) for row in rows} == names
    [rows] = tables(SECTIONS["9.6.1 Requests"], ["request", "answer", "features, one of"])
    told = {code(row[0]): set(re.findall("`([^`]+)`", row[2])) for row in rows}
    needed_of = inquiries._NEEDED | peeking.NEEDED | outbox_requests.NEEDED | outbox_requests.NEEDED
    assert told == {kind.__struct_config__.tag: set(needed) for kind, needed in needed_of.items()}


def test_what_requests_about_work_need_and_are_refused_with() -> None:
    """protocol 10.6"""
    [rows] = tables(SECTIONS["10.6.1 Who may ask what"], ["request", "answer", "features, one of"])
    told = {code(row[0]): set(re.findall("`([^`]+)`", row[2])) for row in rows}
    assert told == {kind.__struct_config__.tag: set(needed) for kind, needed in desk._NEEDED.items()}
    [refusals] = tables(SECTIONS["10.6.2 Refused"], ["code", "category", "when", "what a client does"])
    shared = set(re.findall("`([a-z_]+)`", SECTIONS["10.6.2 Refused"].partition("\n\n|")[0]))
    used = codes_in(desk, giving, handing, replies, pattern=r'No\(\s*"(\w+)"')
    assert {code(row[0]) for row in refusals} == used - shared
    assert used - {code(row[0]) for row in refusals} <= shared
    categories = dict(
        re.findall(r'No\(\s*"(\w+)",[^=]*?category="(\w+)"', "".join(map(inspect.getsource, (desk, handing, replies))))
    )
    assert {code(row[0]): row[1].strip("`") for row in refusals if row[1] != "none"} == categories


def test_links() -> None:
    """protocol 14.4.2, 14.5, 14.6"""
    [rows] = tables(SECTIONS["14.6.1 Who may ask what"], ["request", "answer", "features, one of"])
    told = {code(row[0]): set(re.findall("`([^`]+)`", row[2])) for row in rows}
    assert told == {kind.__struct_config__.tag: set(needed) for kind, needed in linkdesk._NEEDED.items()}
    used = codes_in(linkdesk, giving, pattern=r'No\(\s*"(\w+)"')
    assert codes_of("14.6.2 Refused") == used
    [rows] = tables(SECTIONS["14.5 Ends"], ["code", "when", "what a worker does"])
    ends = {code(row[0]) for row in rows}
    assert ends == set(DEFINITIONS["LinkRefused"]["properties"]["code"]["enum"])
    source = inspect.getsource(links) + inspect.getsource(commands)
    assert {name for name in ends if f'"{name}"' not in source} == set()
    [rows] = tables(SECTIONS["14.4.2 States"], ["state", "since", "meaning"])
    assert {code(row[0]) for row in rows} == set(DEFINITIONS["CommandEntry"]["properties"]["state"]["enum"])


def test_the_states_of_an_assignment_are_listed() -> None:
    """protocol 10.4.1"""
    [rows] = tables(SECTIONS["10.4.1 States"], ["state", "set by", "meaning"])
    assert {code(row[0]) for row in rows} == set(get_args(ProcessingState))
    assert {code(row[0]) for row in rows if row[1] == "the broker"} == desk._BROKER_OWNED


def test_the_reasons_of_notices() -> None:
    """protocol 9.5.6"""
    [rows] = tables(SECTIONS["9.5.6 Given up"], ["kind", "reason"])
    texts = {text for name, text in vars(notices).items() if name.isupper() and name[0] != "_"}
    made = {notices.session_closed("<reason>"), notices.never_confirmed("<reason>")}
    assert {code(row[1]) for row in rows} == (texts - {notices.TIME_OVER}) | made


@pytest.mark.parametrize(
    "members",
    [
        {"groups": "g"},
        {"group": 7},
        {"group": " "},
        {"name": 7},
        {"status": 7},
        {"model": 7},
        {"replyCapability": "dead"},
        {"replyCapability": "live"},
        {"groups": [str(number) for number in range(Limits().groups + 1)]},
    ],
    ids=str,
)
def test_the_refusals_of_presence_are_listed(members: dict[str, Any]) -> None:
    """protocol 4.5"""
    client = World().register("ada", info={"replyCapability": "terminal"})
    [failed] = client.write("presence", requestId="r", **members)
    assert f"`{failed['reason']}`" in SECTIONS["4.5 `presence`"]


# --- numbers --------------------------------------------------------------------------------------------

UNITS = {"KiB": limits.KIB, "MiB": limits.MIB, "ms": 1, "bytes": 1, "": 1}
NUMBERS = [row for rows in tables(SECTIONS["7. Numbers"], ["what", "value", "name"]) for row in rows]


def value_of(name: str) -> Any:
    return getattr(Limits(), name.removeprefix("Limits.")) if name.startswith("Limits.") else getattr(limits, name)


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row[2].strip("`"))
def test_a_number_is_the_one_that_counts(row: list[str]) -> None:
    """protocol 7"""
    told = re.fullmatch(r"(?:one in )?(\d+(?:, \d+)*) ?(\w*)", row[1])
    assert told is not None, row
    values = tuple(int(number) * UNITS[told[2]] for number in told[1].split(", "))
    actual = value_of(code(row[2]))
    assert values == (actual if isinstance(actual, tuple) else (actual,))
    assert code(row[2]).endswith("_MS") or told[2] != "ms" or code(row[2]).endswith("_ms")


def test_every_limit_of_the_rules_and_the_wire_is_listed() -> None:
    listed = {code(row[2]) for row in NUMBERS}
    source = inspect.getsource(limits)
    for part in ("frames", "workflow stages and restoring recipients"):
        [block] = re.findall(rf"^# --- {part} -+\n(.*?)^# ---", source, re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"^([A-Z_]+) =", block, re.MULTILINE)) <= listed
    assert {f"Limits.{name}" for name in Limits.__struct_fields__} <= listed


def test_every_limit_that_is_named_is_listed() -> None:
    named = set(re.findall(r"`(Limits\.\w+|[A-Z]+(?:_[A-Z]+)+)`", TEXT))
    listed = {code(row[2]) for row in NUMBERS}
    variables = {name for name in named if name.startswith(("INTERCOM_", "ATOMIC_", "PI_", "XDG_"))}
    assert named - variables <= listed


# --- sections -------------------------------------------------------------------------------------------


def places() -> set[str]:
    """Return every place of the page that may be named: sections, numbered points in them, and rules of a send."""
    found = set()
    for heading, text in SECTIONS.items():
        number = re.match(r"(\d+(?:\.\d+)*)\.? ", heading)
        if number is None:
            continue
        found.add(number[1])
        found |= {f"{number[1]}.{point}" for point in re.findall(r"^(\d+)\. ", text, re.MULTILINE)}
        found |= {f"{number[1]} {rule}" for rule in re.findall(r"^\| ([A-E]\d+) \|", text, re.MULTILINE)}
    return found


PLACES = places()


@pytest.mark.parametrize("path", sorted((TOP / "intercom").rglob("*.py")), ids=lambda path: path.stem)
def test_every_section_a_docstring_names_is_there(path: Any) -> None:
    text = path.read_text("utf-8")
    for named in re.findall(r"\b[Pp]rotocol (\d+(?:\.\d+)*(?: [A-E]\d+)?)", text):
        assert named in PLACES, named
    assert not re.search(r"\bOP-\d", text), "the page has no such points: name the section"


def test_every_section_the_page_names_is_there() -> None:
    named = set(
        re.findall(r"(?<![\w.])([1-9]\.\d+(?:\.\d+)?)(?![\w.]|, | ms)", re.sub("`[^`]*`|(?m:^    .*$)", "", TEXT))
    )
    assert {"4.8", "6.12.5"} <= named
    assert named <= PLACES


def test_the_rules_of_a_send_are_complete() -> None:
    """protocol 4.8"""
    rules = {place.split()[1] for place in PLACES if place.startswith("4.8 ")}
    expected = {
        f"{part}{number}" for part, count in zip("ABDE", (8, 5, 23, 7), strict=True) for number in range(1, count + 1)
    }
    assert rules == expected


# --- conversations --------------------------------------------------------------------------------------


def shown() -> list[tuple[str, str]]:
    """Return the file named before each conversation of the page, and the conversation."""
    return re.findall(r"`tests/vectors/([\w.-]+)`:\n\n((?:    .+\n)+)", TEXT)


@pytest.mark.parametrize(("name", "lines"), shown(), ids=lambda value: value if value.endswith(".json") else "")
def test_a_conversation_is_the_one_that_is_played(name: str, lines: str) -> None:
    """protocol 8"""
    assert [line[4:] for line in lines.splitlines()] == transcript(VECTORS / name)


def test_every_conversation_of_section_8_is_named() -> None:
    for path in VECTORS.glob("8.*.json"):
        assert f"`tests/vectors/{path.name}`" in TEXT
    assert {name.partition("-")[0] for name, _ in shown()} >= {"8.1", "8.2", "8.3", "8.4", "8.5", "8.9", "8.10"}


# --- flows ----------------------------------------------------------------------------------------------


def test_the_codes_of_flows() -> None:
    """protocol 12.7"""
    modules = flow_changes, flow_requests, flow_reports, flow_validation, giving
    refused = codes_in(*modules, pattern=r'No\(\s*"(\w+)"')
    assert codes_of("12.7 Who may, and refusals") == refused


def test_the_requests_about_flows_and_who_may_make_them() -> None:
    """protocol 12.7"""
    section = SECTIONS["12.7 Who may, and refusals"]
    [rows] = tables(section, ["request", "answer", "features, one of"])
    told = {code(row[0]): set(re.findall("`([^`]+)`", row[2])) for row in rows}
    assert told == {kind.__struct_config__.tag: set(flow_requests.needed_for(kind)) for kind in flow_requests.REQUESTS}
    [rows] = tables(section, ["feature", "what it opens", "granted"])
    assert {code(row[0]) for row in rows} == {features.COORDINATOR, features.FLOW_REPORT, *features.TODO}


# --- invocations ----------------------------------------------------------------------------------------


def test_the_requests_about_invocations_and_their_refusals() -> None:
    """protocol 13.2.3, 13.3, 13.6"""
    section = SECTIONS["13.6 Requests and refusals"]
    [rows] = tables(section, ["request", "answer", "who"])
    assert {code(row[0]) for row in rows} == {kind.__struct_config__.tag for kind in invocation_requests.REQUESTS}
    [rows] = tables(section, ["code", "when", "what a client does"])
    told = {found for row in rows for found in re.findall("`([a-z_]+)`", row[0])}
    assert told == codes_in(invocation_requests, invocation_texts, giving, pattern=r'No\(\s*"(\w+)"') | {"bad_request"}
    [rows] = tables(SECTIONS["13.2.3 Diagnoses"], ["kind", "when"])
    assert {code(row[0]) for row in rows} == set(DEFINITIONS["RouteDiagnosis"]["properties"]["kind"]["enum"])
    [rows] = tables(SECTIONS["13.3 The life of a run"], ["state", "meaning", "goes to"])
    assert {code(row[0]) for row in rows} == set(RUN)
