"""hub_config/workstation as installed, in other folders and ports: real accounts, launcher, service, Hub."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpupool.client.address import UnixAddress
from jupyter_gpupool.client.api import Client
from jupyter_gpupool.client.transport import Connection
from jupyter_gpupool.commands import hub_checks
from jupyter_gpupool.commands.hub_checks import Site as Unit
from tests.conftest_accounts import Accounts
from tests.hub.site import Person, until
from tests.hub.workstation import Workstation


@pytest.fixture
def workstation(accounts: Accounts, readable_python: Path, open_folder: Path) -> Iterator[Workstation]:
    made = Workstation(open_folder, accounts, readable_python)
    made.prepare()
    try:
        yield made
    finally:
        made.close()


def test_an_account_logs_in_and_its_server_outlives_all_three_units(workstation: Workstation):
    ada = workstation.accounts.ada
    workstation.start_launcher()
    workstation.start_service()
    workstation.start_hub()
    unit = Unit.of(workstation.folder)
    assert unit is not None
    problems = [found for found in hub_checks.findings(unit) if found.verdict == "problem"]
    assert [found.subject for found in problems] == ["port"], "a test has no port below 1024"

    person = Person(workstation, ada.name)
    assert person.page(f"/hub/spawn?_xsrf={urllib.parse.quote(person.xsrf)}", b"slice=1%2F8")[0] == 200
    until(workstation.servers, "the server runs", workstation.tail)
    ((server, uid),) = workstation.servers().items()
    assert uid == ada.uid

    for name, start in {
        "hub": workstation.start_hub,
        "service": workstation.start_service,
        "launcher": workstation.start_launcher,
    }.items():
        workstation.stop(name)
        assert list(workstation.servers()) == [server], f"the server goes on without the {name}"
        start()
    until(workstation.answers, "all answers again", workstation.tail)
    asked = UnixAddress(str(workstation.home / "run" / "service.sock"), workstation.accounts.service.uid)
    nodes = Client(Connection(str(asked))).pool()["nodes"]
    leases = [lease["user"] for node in nodes for card in node["gpus"] for lease in card["leases"]]
    assert leases == [ada.name], "and its lease is still its own"
