from __future__ import annotations

import pytest

from tests.support.commands import Shell


def test_it_is_for_the_person(shell: Shell) -> None:
    """Design section 7, Trust."""
    result = shell.run("purge", "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.cli.purge.require_person", lambda _: None)


@pytest.mark.usefixtures("person")
def test_waiting_mail_goes_only_when_its_address_is_named(shell: Shell) -> None:
    shell.serve()
    shell.run("receive", "--as", "worker")
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1")
    assert shell.run("purge", "--json").document["mail"] == 0
    assert shell.run("mailbox", "--as", "worker", "--json").document["count"] == 1
    assert shell.run("purge", "--address", "worker", "--older-than", "1h", "--json").document["mail"] == 0
    result = shell.run("purge", "--address", "worker")
    assert (result.status, result.text) == (0, "deleted; 1 waiting messages were given up\n")
    [told] = shell.run("receive", "--as", "planner", "--json").document["messages"]
    assert (told["notice"]["kind"], told["notice"]["messageId"]) == ("undeliverable", "m-1")


@pytest.mark.usefixtures("person")
def test_an_address_that_is_not_there(shell: Shell) -> None:
    shell.serve()
    result = shell.run("purge", "--address", "nobody", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_address")


@pytest.mark.usefixtures("person")
@pytest.mark.parametrize("options", [("--older-than", "x"), ("--older-than", "-1h"), ("--group", "g")])
def test_options_that_mean_nothing(shell: Shell, options: tuple[str, ...]) -> None:
    result = shell.run("purge", *options, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
