"""``ggeur certificates``: makes a folder for the server and one for each site."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from federatedscope_ggeur.commands import command_parser
from federatedscope_ggeur.errors import ConfigError, did_you_mean, refusing, shown
from federatedscope_ggeur.files import write_atomically, write_once
from federatedscope_ggeur.printable import Lines, say
from federatedscope_ggeur.settings import flatten, one_of, whole

from .transport.certificates import (
    make_authority,
    make_certificate,
    make_node_key,
    require_cryptography,
)
from .transport.security import DENIED, Security, make_token

#: What the file need not say, and the rules of what it may say.
_DEFAULTS = {"engine": "federatedscope", "port": 50050, "days": 365, "settings": {}}
_RULES = {
    "engine": one_of("federatedscope", "flower"),
    "port": whole(1, maximum=65535),
    "days": whole(1, maximum=3650),
}
_KEYS = {"server", "sites", *_DEFAULTS}
_SITE_KEYS = {"name", "domain", "settings"}
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")
#: The names of the folders that do not belong to a site.
_AUTHORITY, _SERVER = "authority", "server"
_LEDGER = "numbers.json"
_LOOPBACK = "127.0.0.1"
_PRIVATE = 0o600
#: In the server's folder, with Flower: the public keys of the sites.
_NODES = "nodes"

_SITE_HEAD = """\
# {name}: client {number} of the federation. Paths are relative to this folder.
# Put the data where data.root says. Then: ggeur check --cfg site.yaml
"""
_SERVER_HEAD = """\
# The server of the federation. Paths are relative to this folder.
# Start it by: ggeur serve --cfg server.yaml
"""


def certificates(arguments: Sequence[str]) -> int:
    """Write the folders of server and sites that do not exist yet."""
    parser = command_parser(
        "certificates",
        "Existing folders are not changed. Give each site only its own folder, and "
        "keep the folder authority to yourself. These TLS certificates show who a "
        "site or the server is. `ggeur certificate` proves the head of a book.",
    )
    parser.add_argument(
        "file", metavar="FILE", help="YAML file with the server's names and the sites"
    )
    parser.add_argument(
        "--out",
        default="federation",
        metavar="FOLDER",
        help="where the folders go (default: federation)",
    )
    parser.add_argument(
        "--withdraw",
        metavar="NAME",
        help="refuse the site's token from now on; its number is never given again",
    )
    parser.add_argument(
        "--renew",
        metavar="NAME",
        help="make a new certificate of a site, or of server, in a new folder",
    )
    options = parser.parse_args(arguments)
    require_cryptography()
    plan, out = _Plan(options.file), Path(options.out)
    _owners_folder(out)
    authority = _authority(out / _AUTHORITY)
    numbers = _Numbers(out)
    if options.withdraw is not None:
        return numbers.withdraw(options.withdraw)
    if options.renew is not None:
        return _renew(out, options.renew, plan, authority, numbers)
    plan.clients = max(map(numbers.of, [site["name"] for site in plan.sites]))
    is_old = _server(out / _SERVER, plan, authority)
    secret = Security(join_secret=str(out / _SERVER / "join_secret")).secret()
    assert secret is not None, "it was made with the folder"
    old = [
        _site(out, numbers.of(site["name"]), site, plan, authority, secret)
        for site in plan.sites
    ]
    if is_old and not all(old):
        say(
            "existing folders were not changed: set federate.client_num to "
            f"{plan.clients} in all their files"
        )
    return 0


class _Plan:
    """The checked contents of the federation's file."""

    def __init__(self, path: str):
        import yaml

        self._path, self._problems = path, list[str]()
        with refusing(f"'{path}': cannot be read"):
            try:
                said = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
            except yaml.YAMLError as error:
                raise ValueError(error) from error
        if not isinstance(said, dict):
            self._wrong("it", "must be a YAML file with server and sites")
            said = {}
        self._only(said, _KEYS, "")
        said = {**_DEFAULTS, **said}
        names = said.get("server")
        self.names: list[str] = names if isinstance(names, list) else [names]  # type: ignore[list-item]
        if not all(isinstance(n, str) and _HOST.fullmatch(n) for n in self.names):
            self._wrong("server", "must list names or IP addresses of the server")
        for key, rule in _RULES.items():
            if problem := rule(said[key]):
                self._wrong(key, problem)
        self.on_flower = said["engine"] == "flower"
        self.port, self.days = said["port"], said["days"]
        given = self._settings(said["settings"], "settings")
        self.settings = {"ggeur.agreed.release": _release(), **given}
        self.clients = 0  # the highest number of a site
        sites = said.get("sites")
        if not isinstance(sites, list) or not sites:
            self._wrong("sites", "must list the sites")
            sites = []
        self.sites = [self._site(one) for one in sites]
        folders = [_AUTHORITY, _SERVER, *(site["name"].lower() for site in self.sites)]
        for name in folders:
            if folders.count(name) > 1:
                problem = f"two sites have the name {name!r}; give each its own"
                self._wrong("sites", problem)
        if self._problems:
            raise ConfigError(Lines([f"'{path}':", *dict.fromkeys(self._problems)]))

    def _wrong(self, key: str, problem: str) -> None:
        self._problems.append(f"  {key}: {problem}")

    def _only(self, said: Mapping, known: set[str], where: str) -> None:
        for key in said:
            if key not in known:
                problem = f"is not one of {', '.join(sorted(known))}"
                problem += did_you_mean(key, known)
                self._wrong(f"{where}{shown(key)}", problem)

    def _settings(self, said: Any, where: str) -> dict[str, Any]:
        if not isinstance(said, dict):
            self._wrong(where, "must be settings as in a config")
            return {}
        from federatedscope_ggeur.cfg_ggeur.load import default_config, set_key

        cfg, pairs = default_config(), dict(flatten(said))
        for key, value in pairs.items():
            if problem := set_key(cfg, key, value):
                self._wrong(f"{where}.{key:.100}", problem)
        return pairs

    def _site(self, said: Any) -> dict[str, Any]:
        if isinstance(said, str):
            said = {"name": said}
        if not isinstance(said, dict):
            self._wrong("sites", f"each site needs a name, got {shown(said)}")
            return {"name": ""}
        self._only(said, _SITE_KEYS, "sites: ")
        name = said.get("name")
        if not isinstance(name, str) or not _FOLDER.fullmatch(name):
            problem = f"must be of letters, digits and - _ . , got {shown(name)}"
            self._wrong("sites: name", problem)
            name = ""
        domain = said.get("domain", name)
        if not isinstance(domain, str) or not domain:
            self._wrong(f"sites: {name}: domain", "must be a text")
        settings = self._settings(said.get("settings", {}), f"sites: {name}: settings")
        return {"name": name, "domain": domain, "settings": settings}


def _authority(folder: Path) -> tuple[bytes, bytes]:
    """The authority in `folder`: a new one, or that of an earlier call."""
    certificate, key = folder / "authority.pem", folder / "authority.key"
    if not folder.exists():
        made = make_authority(f"federation {secrets.token_hex(4)}")
        ledger = json.dumps({"next": 1, "sites": {}}).encode()
        names = "authority.pem", "authority.key", _LEDGER
        _fill(folder, dict(zip(names, (*made, ledger))))
        say(f"{folder}: the authority; keep its key to yourself")
    with refusing(f"the authority in '{folder}': cannot be read"):
        return certificate.read_bytes(), key.read_bytes()


class _Numbers:
    """The ledger of the sites' numbers, in ``authority/``. A number is given once."""

    def __init__(self, out: Path):
        self._path, self._out = out / _AUTHORITY / _LEDGER, out
        with refusing(
            f"'{self._path}': cannot be read (it says which site has which number; put "
            "it back)"
        ):
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._next, self._sites = int(found["next"]), dict(found["sites"])

    def of(self, name: str) -> int:
        """The number of a site; a new site gets a new one."""
        if name not in self._sites:
            self._sites[name], self._next = self._next, self._next + 1
            self._save()
        return self._sites[name]

    def withdraw(self, name: str) -> int:
        """Refuse a site's token; the site gets another number if it comes back."""
        if name not in self._sites:
            raise ConfigError(
                f"--withdraw: there is no site '{name}'"
                + did_you_mean(name, self._sites)
            )
        number, path = self._sites.pop(name), self._out / _SERVER / "join_secret"
        denied = path.with_name(path.name + DENIED)
        before = denied.read_text("utf-8") if denied.exists() else ""
        write_atomically(denied, f"{before}{number}  # {name}\n", _PRIVATE)
        self._save()
        say(
            f"{denied}: client {number} may not join any more. Copy the file to the "
            "server, beside join_secret; a running server reads it anew"
        )
        return 0

    def _save(self) -> None:
        found = {"next": self._next, "sites": self._sites}
        write_atomically(self._path, json.dumps(found, indent=1), _PRIVATE)


def _renew(
    out: Path, name: str, plan: _Plan, authority: tuple[bytes, bytes], numbers: _Numbers
) -> int:
    """Make a new certificate of a site or of the server, in a folder of its own."""
    if name == _SERVER:
        files = _pair(name, name, authority, plan.days, plan.names)
    elif name in [site["name"] for site in plan.sites]:
        about = f"client {numbers.of(name)} {name}"
        files = _pair("site", about, authority, plan.days)
    else:
        raise ConfigError(f"--renew: '{name}' is neither a site of the file nor server")
    folder = out / f"renewed_{name}_{datetime.now():%Y%m%d%H%M%S}"
    _fill(folder, files)
    say(f"{folder}: put both files in the place of the old ones, and start again")
    return 0


def _server(folder: Path, plan: _Plan, authority: tuple[bytes, bytes]) -> bool:
    """Write the server's folder; returns whether it existed."""
    names = list(plan.names)
    if plan.on_flower and _LOOPBACK not in names:
        names.append(_LOOPBACK)  # Flower's programs talk to each other there
    settings = {
        "federate.save_to": "checkpoint/state",
        **plan.settings,
        "ggeur.join_secret": "join_secret",
    }
    if plan.on_flower:  # its SuperLink has the rest
        settings.update({"federate.mode": "distributed", "distribute.role": _SERVER})
        settings.update({"federate.method": "ggeur", "ggeur.use": True})
    else:
        settings.update(_reached("0.0.0.0", plan, _SERVER))
    return _side(
        folder,
        plan,
        (_SERVER_HEAD, _SERVER, settings),
        lambda: {
            "authority.pem": authority[0],
            **_pair(_SERVER, _SERVER, authority, plan.days, names),
            "join_secret": f"{secrets.token_hex(32)}\n".encode(),
        },
        "the server; ggeur serve --cfg server.yaml",
    )


def _site(
    out: Path,
    number: int,
    site: Mapping[str, Any],
    plan: _Plan,
    authority: tuple[bytes, bytes],
    secret: bytes,
) -> bool:
    """Write a site's folder; returns whether it existed."""
    name = site["name"]
    settings = {
        "data.root": "data",
        **plan.settings,
        **site["settings"],
        "ggeur.client_number": number,
        "ggeur.domain": site["domain"],
        "ggeur.join_token": "token",
    }
    if not plan.on_flower:
        settings.update(_reached(plan.names[0], plan, "site"))

    def own() -> dict[str, bytes]:
        if not plan.on_flower:
            return _pair("site", f"client {number} {name}", authority, plan.days)
        key, public = make_node_key()
        nodes = out / _SERVER / _NODES
        _owners_folder(nodes)
        write_once(nodes / f"{name}.pub", public, _PRIVATE)
        return {"node.key": key}

    return _side(
        out / name,
        plan,
        (_SITE_HEAD.format(name=name, number=number), "site", settings),
        lambda: {
            "authority.pem": authority[0],
            "token": f"{make_token(secret, number)}\n".encode(),
            **own(),
        },
        f"made for client {number}; start it there by: ggeur join --cfg site.yaml",
    )


def _side(
    folder: Path,
    plan: _Plan,
    said: tuple[str, str, Mapping[str, Any]],
    files: Callable[[], Mapping[str, bytes]],
    line: str,
) -> bool:
    """Write the folder of one side; returns whether it existed.

    `said` is the head, the name and the settings of its YAML file. `files` makes its
    other files.
    """
    if os.path.lexists(folder):
        say(f"{folder}: exists already and was not changed")
        return True
    head, name, own = said
    settings = {"outdir": "runs", "expname": "federation", **own}
    settings["federate.client_num"] = plan.clients
    text = head + _yaml(settings)
    _fill(folder, {**files(), f"{name}.yaml": text.encode()})
    say(f"{folder}: {line}")
    return False


def _pair(
    file: str,
    name: str,
    authority: tuple[bytes, bytes],
    days: int,
    names: Sequence[str] = (),
) -> dict[str, bytes]:
    """The files of a new certificate and its key."""
    certificate, key = make_certificate(name, authority, days, names)
    return {f"{file}.pem": certificate, f"{file}.key": key}


def _reached(host: str, plan: _Plan, own: str) -> dict[str, Any]:
    """The settings of streams: where the server is, whom to trust, own files."""
    return {
        "ggeur.tls.certificate": f"{own}.pem",
        "ggeur.tls.key": f"{own}.key",
        "distribute.server_host": host,
        "distribute.server_port": plan.port,
        "ggeur.tls.authority": "authority.pem",
    }


def _release() -> str:
    # Imported here: torch takes seconds, and --help needs none of it.
    from .roles import release_text

    return release_text()


def _owners_folder(folder: Path) -> None:
    with refusing(f"cannot make '{folder}'"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder with these files, or make nothing.

    Only the owner of the folder can read the files.
    """
    made = mkdtemp(dir=folder.parent, prefix=".new_")  # its owner's alone
    try:
        with refusing(f"cannot make '{folder}'"):
            for name, data in files.items():
                write_once(Path(made, name), data, _PRIVATE)
            os.rename(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _yaml(settings: Mapping[str, Any]) -> str:
    """Settings with dotted keys as nested YAML, as in every config."""
    import yaml

    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, name = key.split(".")
        node = nested
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return yaml.safe_dump(nested, sort_keys=False, allow_unicode=True)
