"""The pages say what the code has: links, commands, config keys, tests, codes, layouts, bytes and the drawn diagram."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest
from builders import make_bench
from lease_rig import make_pool

import clients
import run
from broker.answers import Answers
from broker.life import Client
from broker.roster import Roster
from schemas import wire
from schemas.config import field_table
from schemas.config_fields import ServerConfig
from schemas.status import Code, Flag, Kind, Place, RequestError
from schemas.tensors import ITEM_BYTES, MAX_RANK, DType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
MAX_PICTURE_BYTES = 700_000
LOG_METHODS = ("debug", "info", "warning", "error", "critical")
# `slotline ...` as an installation has it, in a tree's environment, or from the tree.
COMMAND = re.compile(r"(?:\.venv/bin/)?slotline (.+)|(?:\.venv/bin/)?python run\.py (.+)")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(name: str) -> str:
    """Return the text of a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """Return what stands under *heading*, up to the next one of its level."""
    return text.split(f"\n{heading}\n")[1].split(f"\n{heading.split()[0]} ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows, without the marks of code."""
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]


def inline_code(text: str) -> list[str]:
    """Return what stands between single back quotes, outside fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def shell_lines(text: str) -> Iterator[str]:
    """Yield each command of the fenced shell blocks and of the inline code."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        yield from (part.strip() for line in block.splitlines() for part in line.split("&&"))
    yield from inline_code(text)


def anchors(page: Path) -> set[str]:
    """Return the names under which the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def camel(member: IntEnum | Flag) -> str:
    """Return the name that infer.fbs gives to a kind, flag or place."""
    return "".join(word.capitalize() for word in (member.name or "").split("_"))


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the tree, and to a heading when it names one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_every_command_shown_is_one(page: Path) -> None:
    """With its arguments and options; a script or module beside it is there."""
    for line in shell_lines(page.read_text(encoding="utf-8")):
        command = COMMAND.fullmatch(line)
        if command:
            words = shlex.split(command[1] or command[2])
            run._parser(words[0]).parse_args(words)
        for script in re.findall(r"python ((?:docs|bench|tests)/\S+\.py)", line):
            assert (ROOT / script).is_file(), line
        for module in re.findall(r"python -m (bench[\w.]*)", line):
            assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), line


@each_page
def test_every_config_key_named_exists(page: Path) -> None:
    """Those written with their table, such as `server.drain_s`."""
    known = {f"{table}.{name}" for table, name, *_ in field_table()} | set(statistics())
    for code in inline_code(page.read_text(encoding="utf-8")):
        if re.fullmatch(r"(server|lane\.NAME)\.[\w.]+", code):
            assert code in known, code


@each_page
def test_every_test_named_exists(page: Path) -> None:
    """A link whose text is file::test leads to a file that has it."""
    for file, test, target in re.findall(r"\[(\w+\.py)::(\w+)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert Path(target).name == file
        assert re.search(rf"^ *def {test}\(", (page.parent / target).read_text(encoding="utf-8"), re.MULTILINE), test


def test_the_diagram_of_a_requests_life_is_the_brokers_table() -> None:
    """architecture.md is what `python docs/life_diagram.py` writes."""
    program = "import life_diagram as d; print(d.page(d.PAGE.read_text(encoding='utf-8')), end='')"
    done = subprocess.run([sys.executable, "-c", program], cwd=DOCS, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == read("architecture.md")
    assert "QUEUED --> HELD: dispatch" in done.stdout


def test_the_protocol_lists_every_code_kind_flag_place_and_datatype() -> None:
    """By name and number, in the schema's order."""
    text = read("protocol.md")
    found = [row[:2] for row in rows(text)]

    assert [row for row in found if row[0] in Code.__members__] == [[c.name, str(int(c))] for c in Code if c]
    assert [row for row in found if row[0] in map(camel, Kind)] == [[camel(k), str(int(k))] for k in Kind if k]
    assert [row for row in found if row[0] in map(camel, Flag)] == [[camel(f), str(int(f))] for f in Flag]
    assert [row for row in found if row[0] in map(camel, Place)] == [[camel(p), str(int(p))] for p in Place if p]
    dtypes = [[d.name, str(int(d)), str(ITEM_BYTES.get(d, ""))] for d in DType if d]
    assert [row[:3] for row in rows(text) if row[0] in DType.__members__] == dtypes


def test_the_protocol_draws_the_route_as_it_is() -> None:
    """Every field with its offset and type."""
    sizes = {"Q": 8, "I": 4, "H": 2, "B": 1}
    at, expected = 0, []
    codes = re.sub(r"(\d+)(\w)", lambda repeat: repeat[2] * int(repeat[1]), wire.ROUTE.format[1:])
    for name, code in zip(wire.Route._fields, codes, strict=True):
        expected.append([str(at), name, f"u{sizes[code] * 8}"])
        at += sizes[code]

    assert at == wire.ROUTE.size
    assert [row[:3] for row in rows(section(read("protocol.md"), "## 2. The header")) if row[0].isdecimal()] == expected


def test_the_protocol_names_the_limits_as_they_are() -> None:
    """In the order of their table; those that a config sets are named by their keys."""
    said = [row[1] for row in rows(section(read("protocol.md"), "## 12. Limits"))[1:]]
    numbers = [wire.MAX_HEADER_BYTES, wire.MAX_FRAMES, wire.MAX_PACKED, wire.MAX_INLINE_BYTES, wire.MAX_TENSORS, MAX_RANK]
    numbers += [wire.MAX_CLIENT_ID_BYTES, wire.MAX_MESSAGE_BYTES]

    assert [int(text.split()[0].replace(",", "")) for text in said[: len(numbers)]] == numbers


@pytest.mark.parametrize("name", ["tick_request", "error"])
def test_the_protocol_shows_the_golden_bytes(name: str) -> None:
    """The dump behind the file's name is the file."""
    dump = read("protocol.md").split(f"`tests/wire/golden/{name}.bin`")[1].split("```text\n")[1].split("```")[0]
    shown = bytes.fromhex("".join(line[4:] for line in dump.splitlines()))

    assert shown == (ROOT / "tests" / "wire" / "golden" / f"{name}.bin").read_bytes()


def test_the_page_on_failures_names_codes_and_exceptions_that_exist() -> None:
    """Words in capitals with an underscore are codes; classes are the client's, or what an embedded pipeline raises."""
    text = read("failures.md")
    exceptions = {word for word in inline_code(text) if re.fullmatch(r"(?:[A-Z][a-z]+)+", word)}

    assert set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)) <= set(Code.__members__)
    assert exceptions
    assert exceptions <= {*clients.__all__, RequestError.__name__}


def test_every_statistic_has_its_line() -> None:
    """And no line is left of one that is gone."""
    listed = [name for row in rows(section(read("operations.md"), "## Statistics"))[1:] for name in re.split(r"`, `", row[0])]

    assert sorted(name for name in listed if name != "ledger.codes.CODE") == sorted(statistics())


def test_every_event_of_the_log_has_its_line_and_level() -> None:
    """Of all calls of a logger in the packages; and no line is left of an event that is gone."""
    listed = [(name, row[1]) for row in rows(section(read("operations.md"), "## Logs")) for name in re.split(r"`, `", row[0])]

    assert {entry for entry in listed if entry[1] in LOG_METHODS} == set(logged())


def logged() -> Iterator[tuple[str, str]]:
    """Yield event and level of each call of a logger."""
    packages = [path for name in ("broker", "stages", "schemas", "clients") for path in (ROOT / name).rglob("*.py")]
    modules = [ROOT / "run.py", *(path for path in packages if "node_modules" not in path.parts)]
    for module in modules:
        for call in (found for found in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(found, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr in LOG_METHODS and is_logger(call.func.value):
                assert isinstance(call.args[0], ast.Constant), f"{module}:{call.lineno}: an event has one name"
                yield str(call.args[0].value), call.func.attr


def is_logger(owner: ast.expr) -> bool:
    """True for what get_logger returned, and for the names that it is kept under."""
    if isinstance(owner, ast.Call):
        return isinstance(owner.func, ast.Name) and owner.func.id == "get_logger"
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) in ("_log", "log")


def statistics() -> list[str]:
    """Return the names of all statistics, with NAME for the lane's and N for the client's number."""
    bench, roster = make_bench(), Roster(1)
    bench.core.leases = make_pool()
    roster.clients[b""] = Client(b"", received=1)
    answers = Answers(bench.core, ServerConfig(), epoch=1)
    answers.rosters.append(roster)
    names = answers.stats()
    return [name.replace(f"lane.{bench.lane.plan.name}.", "lane.NAME.").replace("client.1.", "client.N.") for name in names]


def test_the_readmes_picture_is_small() -> None:
    """A page that takes long to load is not read."""
    assert (DOCS / "demo.png").stat().st_size < MAX_PICTURE_BYTES
