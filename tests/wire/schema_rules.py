"""The rules by which infer.fbs may change once it is released (docs/protocol.md, section 13), as a comparison of two texts.

flatc --conform misses some of them: it does not notice a grown struct, a changed ``required``, a deleted value of an enumeration
or another file identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Bytes, and alignment, of what a struct may hold.
SCALAR_BYTES = {
    "bool": 1, "ubyte": 1, "byte": 1, "ushort": 2, "short": 2, "uint": 4, "int": 4, "float": 4, "ulong": 8, "long": 8,
    "double": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One field: its type with its default, and its attributes but for the id and ``deprecated``, which may be added."""

    number: int
    kind: str
    attributes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Schema:
    """What is compared of a schema.

    Attributes:
        facts: the namespace, the root type, the file identifier and extension.
        enums: name -> (its type with bit_flags, names -> numbers).
        structs: name -> its fields as text, in order.
        tables: name -> fields by name.
        unions: name -> its members in order.
    """

    facts: dict[str, str] = field(default_factory=dict)
    enums: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    tables: dict[str, dict[str, Member]] = field(default_factory=dict)
    unions: dict[str, list[str]] = field(default_factory=dict)


def parse(text: str) -> Schema:
    """Return what a schema declares, comments left out."""
    text = re.sub(r"//.*", "", text)
    schema = Schema()
    for key, value in re.findall(r'^\s*(namespace|root_type|file_identifier|file_extension)\s+"?(\w+)"?\s*;', text, re.MULTILINE):
        schema.facts[key] = value
    for word, name, more, body in re.findall(r"\b(enum|struct|table|union)\s+(\w+)([^{]*)\{([^}]*)\}", text):
        if word == "enum":
            schema.enums[name] = " ".join(more.split()), _numbers(body, is_flags="bit_flags" in more)
        elif word == "struct":
            schema.structs[name] = re.findall(r"(\w+)\s*:\s*(\w+)\s*;", body)
        elif word == "table":
            schema.tables[name] = dict(_members(body))
        else:
            schema.unions[name] = [part.strip() for part in body.split(",") if part.strip()]
    return schema


def _numbers(body: str, *, is_flags: bool) -> dict[str, int]:
    numbers: dict[str, int] = {}
    number = -1
    for name, given in re.findall(r"(\w+)\s*(?:=\s*(\d+))?\s*(?:,|$)", body.strip()):
        number = int(given) if given else number + 1
        numbers[name] = 1 << number if is_flags else number
    return numbers


def _members(body: str) -> Iterator[tuple[str, Member]]:
    for name, kind, attributes in re.findall(r"(\w+)\s*:\s*([^;(]+?)\s*(?:\(([^)]*)\))?\s*;", body):
        words = [word.strip() for word in attributes.split(",")]
        number = next(int(word.partition(":")[2]) for word in words if word.startswith("id:"))
        rest = frozenset(word for word in words if word and not word.startswith("id:") and word != "deprecated")
        yield name, Member(number, " ".join(kind.split()), rest)


def violations(old: Schema, new: Schema) -> Iterator[str]:
    """Yield each way in which *new* breaks what was released as *old*."""
    for key, value in old.facts.items():
        if new.facts.get(key) != value:
            yield f"{key} was {value}"
    for name, (kind, numbers) in old.enums.items():
        yield from _of_enum(name, kind, numbers, new)
    for name, fields in old.structs.items():
        if new.structs.get(name) != fields:
            yield f"struct {name} has changed"
    for name, members in old.tables.items():
        yield from _of_table(name, members, new.tables.get(name, {}))
    for name, parts in old.unions.items():
        if new.unions.get(name, [])[: len(parts)] != parts:
            yield f"union {name} has changed before its end"


def _of_enum(name: str, kind: str, numbers: dict[str, int], new: Schema) -> Iterator[str]:
    new_kind, new_numbers = new.enums.get(name, ("", {}))
    if new_kind != kind:
        yield f"enum {name} was {kind}"
    for value, number in numbers.items():
        if new_numbers.get(value) != number:
            yield f"{name}.{value} was {number}"
    for value, number in new_numbers.items():
        if value not in numbers and number in numbers.values():
            yield f"{name}.{value} takes a number that is in use"


def _of_table(name: str, members: dict[str, Member], new: dict[str, Member]) -> Iterator[str]:
    for member, was in members.items():
        now = new.get(member)
        if now != was:
            yield f"{name}.{member} has another id, type, default or attribute, or is gone"
    last = max((_ids(was)[-1] for was in members.values()), default=-1)
    for member, now in sorted(new.items(), key=lambda item: item[1].number):
        if member in members:
            continue
        if _ids(now)[0] != last + 1:
            yield f"{name}.{member}: expected the next id, {last + 1}"
        if "required" in now.attributes:
            yield f"{name}.{member}: a new field is never required"
        last = _ids(now)[-1]


def _ids(member: Member) -> tuple[int, ...]:
    """Return the ids that a field takes: a union's type tag has the one before its own."""
    return (member.number - 1, member.number) if member.kind == "Body" else (member.number,)


def size_of(schema: Schema, struct: str) -> int:
    """Return the bytes of a struct, padding included."""
    at, widest = 0, 1
    for _, kind in schema.structs[struct]:
        width = SCALAR_BYTES[schema.enums[kind][0].lstrip(": ").split()[0] if kind in schema.enums else kind]
        at += -at % width + width
        widest = max(widest, width)
    return at + -at % widest
