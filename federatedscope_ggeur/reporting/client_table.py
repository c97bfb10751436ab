"""The results of each client, in a table beside ``results.json`` if there are many.

Up to `MOST` clients, ``results.json`` has the results of each client. With more
clients, ``clients.csv`` has a row for each client, and ``results.json`` has only sums.
Both files together give the same results to the bit.
"""

import csv
import hashlib
import io
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Optional

from federatedscope_ggeur.errors import DataError

from .json_values import parse_json
from .run_files import CLIENTS_FILE
from .tables import csv_text

#: With more clients, results.json does not list them one by one.
MOST = 1000

_ROWS = ("train_rows", "test_rows", "val_rows")
#: Column: the path of a list of clients' numbers in results.json.
_LISTS = {"in_round0": ("round0", "clients"), "in_sums": ("round0", "sums", "roster")}
#: Column: the path of an object with a number for each client.
_NUMBERS = {
    "statistics_bytes_up": ("round0", "statistics_bytes_up"),
    "closed_form_accuracy": ("round0", "closed_form", "client_accuracy"),
    "calibrated_accuracy": ("calibrated", "client_accuracy"),
    "accuracy": ("final", "client_accuracy"),
}
_COMPRESSION = ("round0", "compression", "clients")
_COMPRESSED = ("left_out", "covariance_error", "rounding_error", "mean_error")
_COLUMNS = (
    *("number", "domain", "domain_name", *_ROWS, *_LISTS, "rounds", *_NUMBERS),
    *(f"compression_{name}" for name in _COMPRESSED),
)

#: A table cell without a value.
_ABSENT = ""
#: Far above all numbers in results, so their sums stay finite.
_LARGEST = 2.0**64
Columns = dict[str, list]


def divided(raw: dict[str, Any]) -> tuple[dict[str, Any], Optional[str]]:
    """Divide results into the value of results.json and the text of clients.csv.

    Up to `MOST` clients these are `raw` and None. With more clients, the function
    changes `raw` in place.
    """
    clients = raw["clients"]
    numbers = [client["number"] for client in clients]
    if len(numbers) <= MOST or numbers != sorted(set(numbers)):
        return raw, None
    columns = _of_clients(clients)
    for name, path in _LISTS.items():
        owner, key, members = _find(raw, path)
        if members and _are_among(members, numbers):
            columns[name] = _marks(members, numbers)
            owner[key] = {"clients": len(members)}
    for name, path in _NUMBERS.items():
        owner, key, values = _find(raw, path)
        if values and _are_keys(values, numbers):
            columns[name] = [values.get(str(k), _ABSENT) for k in numbers]
            owner[key] = _summed(values)
    owner, key, values = _find(raw, _COMPRESSION)
    if _are_keys(values, numbers):
        for name in _COMPRESSED:
            of = {k: value[name] for k, value in values.items()}
            column = [of.get(str(k), _ABSENT) for k in numbers]
            columns[f"compression_{name}"] = column
        owner[key] = _summed_records(values)
    large = [one for one in raw["rounds"] if len(one["clients"]) > MOST]
    large = [one for one in large if _are_among(one["clients"], numbers)]
    if large:
        columns["rounds"] = _rounds_of_each(large, numbers)
        for record in large:
            record["clients"] = {"clients": len(record["clients"])}
    names = [name for name in _COLUMNS if name in columns]
    shown = [map(_shown, columns[name]) for name in names]
    text = csv_text([names, *zip(*shown)])
    about = {"file": CLIENTS_FILE, "sha256": _digest(text)}
    raw["clients"] = {**about, **_summed_clients(clients)}
    return raw, text


def joined(raw: dict[str, Any], text: str) -> dict[str, Any]:
    """Put the content `text` of clients.csv back into the value of results.json.

    The function changes `raw` in place, unless `raw` lists the clients itself.

    Raises
    ------
    DataError
        The table is missing or broken, or belongs to other results.
    """
    about = raw.get("clients")
    if not isinstance(about, dict):
        return raw
    if not text:
        raise DataError(
            f"{CLIENTS_FILE} is missing, which lists the clients if there are more "
            f"than {MOST}; copy it into the same folder"
        )
    if about.get("sha256") != _digest(text):
        raise _broken("belongs to other results")
    columns = _read(text)
    raw["clients"] = list(_clients(columns, about))
    numbers = columns["number"]
    for name, path in _LISTS.items():
        if name in columns:
            owner, key, _ = _find(raw, path)
            owner[key] = [k for k, mark in zip(numbers, columns[name]) if mark]
    for name, path in _NUMBERS.items():
        if name in columns:
            owner, key, _ = _find(raw, path)
            owner[key] = _by_number(numbers, columns[name])
    parts = [columns.get(f"compression_{name}") for name in _COMPRESSED]
    if None not in parts:
        owner, key, _ = _find(raw, _COMPRESSION)
        owner[key] = {
            str(k): dict(zip(_COMPRESSED, values))
            for k, values in zip(numbers, zip(*parts))
            if values[0] is not False
        }
    if "rounds" in columns:
        _put_rounds(raw, columns, numbers)
    return raw


# of both


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _find(raw: Any, path: Sequence[str]) -> tuple[dict, str, Any]:
    """Find the value at `path`: returns the dict that has it, its key, and the value.

    A missing value is None.
    """
    owner = raw
    for name in path[:-1]:
        owner = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(owner, dict):
        owner = {}
    return owner, path[-1], owner.get(path[-1])


def _summed(values: dict[str, Any]) -> dict[str, Any]:
    """The number of clients with a value, and the values' sum, mean and extremes."""
    known = [value for value in values.values() if value is not None]
    whole = all(isinstance(value, int) for value in known)
    total = sum(known) if whole else math.fsum(known)
    return {
        "clients": len(values),
        "sum": total,
        "mean": total / len(known) if known else None,
        "least": min(known, default=None),
        "largest": max(known, default=None),
    }


def _summed_records(values: dict[str, Any]) -> dict[str, Any]:
    each = {
        name: _summed({k: value[name] for k, value in values.items()})
        for name in _COMPRESSED
    }
    return {"clients": len(values), **each}


def _summed_clients(clients: Sequence[dict]) -> dict[str, Any]:
    domains: dict[str, dict[str, Any]] = {}
    for client in clients:
        start = {"domain": client["domain"], "clients": 0, **dict.fromkeys(_ROWS, 0)}
        known = domains.setdefault(client["domain"], start)
        known["clients"] += 1
        for name in _ROWS:
            both = known[name], client[name]
            known[name] = None if None in both else sum(both)
    return {"number": len(clients), "domains": list(domains.values())}


# to the table


def _of_clients(clients: Sequence[dict]) -> Columns:
    domains = dict.fromkeys(client["domain"] for client in clients)
    places = {domain: place for place, domain in enumerate(domains)}
    columns: Columns = {
        "number": [client["number"] for client in clients],
        "domain": [places[client["domain"]] for client in clients],
        "domain_name": [client["domain"] for client in clients],
    }
    for name in _ROWS:
        values = [client[name] for client in clients]
        columns[name] = [_ABSENT if value is None else value for value in values]
    return columns


def _are_among(members: Any, numbers: Sequence[int]) -> bool:
    """Whether `members` are some of the table's clients `numbers`, in their order."""
    if not isinstance(members, list):
        return False
    chosen = set(members)
    return members == [k for k in numbers if k in chosen]


def _are_keys(values: Any, numbers: Sequence[int]) -> bool:
    return isinstance(values, dict) and values.keys() <= set(map(str, numbers))


def _marks(members: Sequence[int], numbers: Sequence[int]) -> list:
    chosen = set(members)
    return [1 if k in chosen else _ABSENT for k in numbers]


def _rounds_of_each(records: Sequence[dict], numbers: Sequence[int]) -> list[str]:
    """The rounds that each client trained in, such as "1-20 25"."""
    found: dict[int, list[int]] = {k: [] for k in numbers}
    for record in records:
        for k in record["clients"]:
            found[k].append(record["round"])
    return [" ".join(_ranges(found[k])) for k in numbers]


def _ranges(rounds: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(rounds), lambda pair: pair[1] - pair[0]):
        (_, first), *rest = group
        yield f"{first}-{rest[-1][1]}" if rest else str(first)


def _shown(value: Any) -> Any:
    """The text of a cell: numbers as in JSON, texts unchanged."""
    return value if isinstance(value, str) else json.dumps(value)


# from the table


def _read(text: str) -> Columns:
    """Read the columns of a table: numbers and None; an empty cell becomes False."""
    try:
        names, *rows = csv.reader(io.StringIO(text))
    except (ValueError, csv.Error) as error:
        raise _broken(f"is no table ({error})") from error
    unknown = sorted(set(names) - set(_COLUMNS))
    missing = [name for name in ("number", "domain", *_ROWS) if name not in names]
    if unknown or missing or len(set(names)) < len(names):
        raise _broken(f"has the columns {', '.join(names):.200}")
    if any(len(row) != len(names) for row in rows):
        raise _broken("has rows of several lengths")
    columns: Columns = {}
    for name, cells in zip(names, zip(*rows)):
        if name == "rounds":
            columns[name] = list(cells)
        elif name != "domain_name":  # it is for people; a name may be cut there
            columns[name] = _numbers_of(name, cells)
    return columns


def _numbers_of(name: str, cells: Iterable[str]) -> list:
    """The values of a column, parsed together, since there may be very many."""
    cells = [cell or "false" for cell in cells]
    try:
        found = parse_json(f"[{','.join(cells)}]")
    except DataError as error:
        raise _broken(f"has a cell without a number in {name}: {error}") from error
    if not all(map(_is_plain, found)) or len(found) != len(cells):
        raise _broken(f"has a cell without a number in {name}")
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return abs(value) <= _LARGEST
    return value is None


def _clients(columns: Columns, about: dict) -> Iterator[dict[str, Any]]:
    """Yield each client in the form of a results.json with few clients."""
    domains = about.get("domains")
    rows = zip(*(columns[name] for name in ("number", "domain", *_ROWS)))
    for number, place, *held in rows:
        try:
            domain = domains[place]["domain"]  # type: ignore[index]
        except (TypeError, KeyError, IndexError):
            raise _broken(f"has an unknown domain for client {number}") from None
        shown = [None if value is False else value for value in held]
        yield {"number": number, "domain": domain, **dict(zip(_ROWS, shown))}


def _by_number(numbers: Sequence[int], values: Sequence) -> dict[str, Any]:
    rows = zip(numbers, values)
    return {str(k): value for k, value in rows if value is not False}


def _put_rounds(raw: dict, columns: Columns, numbers: Sequence[int]) -> None:
    records = raw.get("rounds")
    records = records if isinstance(records, list) else []
    summed = {
        record["round"]: record
        for record in records
        if isinstance(record, dict) and isinstance(record.get("clients"), dict)
        # else the schema refuses it
        if isinstance(record.get("round"), int)
    }
    known = sorted(summed)
    members: dict[int, list[int]] = {number: [] for number in known}
    for k, cell in zip(numbers, columns["rounds"]):
        for part in cell.split():
            first, _, last = part.partition("-")
            if not (first.isdecimal() and (last or first).isdecimal()):
                raise _broken(f"has {part!r:.80} in the column rounds")
            begin, end = parse_json(first), parse_json(last or first)
            inside = known[bisect_left(known, begin) : bisect_right(known, end)]
            for number in inside:
                members[number].append(k)
    for number, record in summed.items():
        record["clients"] = members[number]


def _broken(problem: str) -> DataError:
    return DataError(
        f"{CLIENTS_FILE} {problem}; restore it and results.json as the run wrote them"
    )
