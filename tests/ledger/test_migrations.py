"""The migrations end in the tables, from every revision, and a newer schema is left alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from jupyter_gpupool.ledger import CardRecord, Job, LeaseRecord, Ledger, LedgerError, SessionRecord, tables
from jupyter_gpupool.ledger.migrate import HEAD, REVISIONS, revision, upgrade
from jupyter_gpupool.ledger.sqlite import connect
from jupyter_gpupool.scheduler.model import Promise


def scripts():
    config = Config()
    config.set_main_option("script_location", "jupyter_gpupool.ledger:migrations")
    return ScriptDirectory.from_config(config)


def differences(connection):
    return compare_metadata(
        MigrationContext.configure(connection, opts={"compare_type": True}), tables.metadata
    )


def test_the_list_of_revisions_is_that_of_the_scripts():
    assert [script.revision for script in scripts().walk_revisions()] == list(reversed(REVISIONS))


@pytest.mark.parametrize("present", [None, *REVISIONS])
def test_from_each_revision_a_ledger_opens_with_the_tables_of_today(tmp_path, sample, present):
    path = tmp_path / "ledger.sqlite"
    if present is not None:
        with connect(path) as connection, connection.begin():
            upgrade(connection, present)
            assert revision(connection) == present
    ledger = Ledger.open(path, now=0, boot_id="b")
    ledger.add_job(sample.job(), 1)
    ledger.close()
    with connect(path) as connection:
        assert revision(connection) == HEAD
        assert differences(connection) == []


def columns(connection):
    """Name, type, whether it may be null, and place in the key of each column of each table."""
    found = {}
    for table in sa.inspect(connection).get_table_names():
        for _, name, type_, required, _, key in connection.execute(sa.text(f'PRAGMA table_info("{table}")')):
            found[table, name] = (type_.upper(), required, key)
    return found


def test_a_new_ledger_is_made_like_one_that_was_upgraded_step_by_step(tmp_path):
    made = []
    for steps in (REVISIONS, [HEAD]):
        with connect(tmp_path / f"{len(steps)}.sqlite") as connection, connection.begin():
            for step in steps:
                upgrade(connection, step)
            made.append(columns(connection))
    assert made[0] == made[1]


def test_a_difference_would_be_seen():
    with sa.create_engine("sqlite://").connect() as connection:
        tables.metadata.create_all(connection)
        connection.execute(sa.text("ALTER TABLE jobs ADD COLUMN extra TEXT"))
        assert [difference[0] for difference in differences(connection)] == ["remove_column"]


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (tables.jobs, Job),
        (tables.leases, LeaseRecord),
        (tables.sessions, SessionRecord),
        (tables.promises, Promise),
        (tables.cards, CardRecord),
    ],
)
def test_each_field_has_its_column(table, record):
    assert [column.name for column in table.columns] == [field.name for field in fields(record)]


def test_a_newer_schema_is_refused_and_left_alone(opened):
    opened.ledger.close()
    with connect(opened.path) as connection, connection.begin():
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(
        LedgerError, match=f"newer jupyter-gpupool .schema 9999; this version knows up to {HEAD}"
    ):
        opened.reopen()
    with connect(opened.path) as connection, connection.begin():
        assert revision(connection) == "9999"
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{HEAD}'"))
    opened.ledger = Ledger.open(opened.path, now=0, boot_id="b")


def test_a_migration_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with connect(path) as connection:
        with connection.begin():
            connection.execute(sa.text("CREATE TABLE usage (in_the_way INTEGER)"))
        with pytest.raises(sa.exc.OperationalError, match="usage already exists"), connection.begin():
            upgrade(connection)
        with connection.begin():
            assert sa.inspect(connection).get_table_names() == ["usage"]


def test_an_ordinary_start_does_not_load_alembic(opened):
    opened.ledger.close()
    program = (
        "import sys; from pathlib import Path; from jupyter_gpupool.ledger import Ledger;"
        "Ledger.open(Path(sys.argv[1]), now=0, boot_id='b').close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(opened.path)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"
    opened.ledger = Ledger.open(opened.path, now=0, boot_id="b")
