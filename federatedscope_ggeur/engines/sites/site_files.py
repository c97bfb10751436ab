"""``ggeur certificates``: makes a folder for the server and one for each site."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from federatedscope_ggeur.commands import add_options, command_parser
from federatedscope_ggeur.errors import ConfigError, did_you_mean, refusing, shown
from federatedscope_ggeur.files import write_atomically, write_folder, write_once
from federatedscope_ggeur.printable import Lines, say
from federatedscope_ggeur.settings import Rule, flatten, one_of, rule_of, whole

from .transport.certificates import (
    make_authority,
    make_certificate,
    make_node_key,
    require_cryptography,
)
from .transport.security import DENIED, Security, make_token

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")


def _are_hosts(said: Any) -> bool:
    names = said if isinstance(said, list) else [said]
    good = (isinstance(name, str) and _HOST.fullmatch(name) for name in names)
    return bool(names) and all(good)


#: What the file may say, with the rules, and what it need not say. Then so of a site.
_RULES = {
    "server": rule_of("must list names or IP addresses of the server", _are_hosts),
    "sites": rule_of("must list the sites", lambda said: said and type(said) is list),
    "engine": one_of("federatedscope", "flower"),
    "port": whole(1, maximum=65535),
    "days": whole(1, maximum=3650),
    "settings": lambda said: "",
}
_DEFAULTS = {"engine": "federatedscope", "port": 50050, "days": 365, "settings": {}}
_SITE_RULES = {
    "name": rule_of(
        "must be of letters, digits and - _ . ",
        lambda said: isinstance(said, str) and _FOLDER.fullmatch(said),
    ),
    "domain": rule_of("must be a text", lambda said: said and isinstance(said, str)),
    "settings": lambda said: "",
}
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


_OPTIONS = """
file FILE: YAML file with the server's names and the sites
--out FOLDER: where the folders go (default: federation)
--withdraw NAME: refuse the site's token from now on; its number is never given again
--renew NAME: make a new certificate of a site, or of server, in a new folder
"""


def certificates(arguments: Sequence[str]) -> int:
    """Write the folders of server and sites that do not exist yet."""
    parser = command_parser(
        "certificates",
        "Existing folders are not changed. Give each site only its own folder, and "
        "keep the folder authority to yourself. These TLS certificates show who a "
        "site or the server is. `ggeur certificate` proves the head of a book.",
    )
    add_options(parser, _OPTIONS, out={"default": "federation"})
    options = parser.parse_args(arguments)
    require_cryptography()
    made = _Folders(_Plan(options.file), Path(options.out))
    if options.withdraw is not None:
        made.withdraw(options.withdraw)
    elif options.renew is not None:
        made.renew(options.renew)
    else:
        made.make_all()
    return 0


class _Plan:
    """The checked contents of the federation's file."""

    def __init__(self, path: str):
        # Imported here: torch takes seconds, and --help needs none of it.
        from federatedscope_ggeur.cfg_ggeur.yaml_file import read_tree

        from .roles import release_text

        self._problems = list[str]()
        said, _ = read_tree(path)
        values = self._checked(said, _RULES, _DEFAULTS, "")
        names, sites = values["server"], values["sites"]
        self.names: list[str] = names if isinstance(names, list) else [names]
        self.on_flower = values["engine"] == "flower"
        self.port, self.days = values["port"], values["days"]
        given = self._settings(values["settings"], "settings")
        self.settings = {"ggeur.agreed.release": release_text(), **given}
        listed = sites if isinstance(sites, list) else []
        self.sites = [self._site(one) for one in listed]
        folders = [_AUTHORITY, _SERVER, *(site["name"].lower() for site in self.sites)]
        for name in folders:
            if folders.count(name) > 1:
                problem = f"two sites have the name {name!r}; give each its own"
                self._wrong("sites", problem)
        if self._problems:
            raise ConfigError(Lines([f"'{path}':", *dict.fromkeys(self._problems)]))

    def _wrong(self, key: str, problem: str) -> None:
        self._problems.append(f"  {key}: {problem}")

    def _checked(
        self, said: Mapping, rules: Mapping[str, Rule], defaults: Mapping, where: str
    ) -> dict[str, Any]:
        """What the file says in one place, with the defaults."""
        for key in said:
            if key not in rules:
                problem = f"is not one of {', '.join(sorted(rules))}"
                problem += did_you_mean(key, rules)
                self._wrong(f"{where}{shown(key)}", problem)
        values = {**dict.fromkeys(rules), **defaults, **said}
        for key, rule in rules.items():
            if problem := rule(values[key]):
                self._wrong(f"{where}{key}", problem)
        return values

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
        name = said.get("name")
        if _SITE_RULES["name"](name):
            where, name = "sites: ", ""
        else:
            where = f"sites: {name}: "
        defaults: dict[str, Any] = {"domain": name or "a site", "settings": {}}
        values = self._checked(said, _SITE_RULES, defaults, where)
        settings = self._settings(values["settings"], f"{where}settings")
        return {"name": name, "domain": values["domain"], "settings": settings}


class _Folders:
    """The folders of a federation below `out`: the authority, the server, the sites.

    The ledger in ``authority/`` says which site has which number. A number is given
    once.
    """

    def __init__(self, plan: _Plan, out: Path):
        self._plan, self._out = plan, out
        _owners_folder(out)
        place = out / _AUTHORITY
        certificate, key = place / "authority.pem", place / "authority.key"
        self._ledger, self._secret = place / _LEDGER, out / _SERVER / "join_secret"
        if not place.exists():
            names = certificate.name, key.name, _LEDGER
            made = make_authority(f"federation {secrets.token_hex(4)}")
            ledger = json.dumps({"next": 1, "sites": {}}).encode()
            _fill(place, dict(zip(names, (*made, ledger))))
            say(f"{place}: the authority; keep its key to yourself")
        with refusing(f"the authority in '{place}': cannot be read"):
            self._authority = certificate.read_bytes(), key.read_bytes()
        with refusing(
            f"'{self._ledger}': cannot be read (it says which site has which number; "
            "put it back)"
        ):
            numbers = json.loads(self._ledger.read_text(encoding="utf-8"))
            self._next, self._sites = int(numbers["next"]), dict(numbers["sites"])

    def make_all(self) -> None:
        """Make the folders that do not exist yet."""
        plan = self._plan
        self._refuse_left_over([site["name"] for site in plan.sites])
        # The highest number of a site.
        self._clients = max(self._number(site["name"]) for site in plan.sites)
        is_old = self._server()
        secret = Security(join_secret=str(self._secret)).secret()
        assert secret is not None, "it was made with the folder"
        old = [self._site(site, secret) for site in plan.sites]
        if is_old and not all(old):
            say(
                "existing folders were not changed: set federate.client_num to "
                f"{self._clients} in all their files"
            )

    def _refuse_left_over(self, names: Sequence[str]) -> None:
        """Raise `ConfigError` if there are files of a site that has no number."""
        for name in names:
            files = [self._out / name, self._out / _SERVER / _NODES / f"{name}.pub"]
            there = [f"'{path}'" for path in files if os.path.lexists(path)]
            if there and name not in self._sites:
                raise ConfigError(
                    f"sites: {name}: has no number, as after --withdraw, but there is "
                    f"{' and '.join(there)}. Take the site out of the file; or move "
                    "that away, then the site is made anew"
                )

    def withdraw(self, name: str) -> None:
        """Refuse a site's token; the site gets another number if it comes back."""
        if name not in self._sites:
            raise ConfigError(
                f"--withdraw: there is no site '{name}'"
                + did_you_mean(name, self._sites)
            )
        number = self._sites.pop(name)
        denied = self._secret.with_name(self._secret.name + DENIED)
        before = denied.read_text("utf-8") if denied.exists() else ""
        write_atomically(denied, f"{before}{number}  # {name}\n", _PRIVATE)
        self._save_numbers()
        say(
            f"{denied}: client {number} may not join any more. Copy the file to the "
            "server, beside join_secret; a running server reads it anew"
        )

    def renew(self, name: str) -> None:
        """Make a new certificate of a site or of the server, in a folder of its own."""
        if name == _SERVER:
            files = self._pair(name, name, self._plan.names)
        elif name in [site["name"] for site in self._plan.sites]:
            self._refuse_left_over([name])
            files = self._pair("site", f"client {self._number(name)} {name}")
        else:
            raise ConfigError(
                f"--renew: '{name}' is neither a site of the file nor server"
            )
        folder = self._out / f"renewed_{name}_{datetime.now():%Y%m%d%H%M%S}"
        _fill(folder, files)
        say(f"{folder}: put both files in the place of the old ones, and start again")

    def _number(self, name: str) -> int:
        """The number of a site; a new site gets a new one."""
        if name not in self._sites:
            self._sites[name], self._next = self._next, self._next + 1
            self._save_numbers()
        return self._sites[name]

    def _save_numbers(self) -> None:
        numbers = {"next": self._next, "sites": self._sites}
        write_atomically(self._ledger, json.dumps(numbers, indent=1), _PRIVATE)

    def _server(self) -> bool:
        """Make the server's folder; returns whether it existed."""
        plan, names = self._plan, list(self._plan.names)
        settings = {
            "federate.save_to": "checkpoint/state",
            **plan.settings,
            "ggeur.join_secret": "join_secret",
        }
        if plan.on_flower:  # its SuperLink has the rest
            if _LOOPBACK not in names:
                names.append(_LOOPBACK)  # its programs talk to each other there
            settings.update({"federate.mode": "distributed", "ggeur.use": True})
            settings.update({"federate.method": "ggeur", "distribute.role": _SERVER})
        else:
            settings.update(self._reached("0.0.0.0", _SERVER))

        def own() -> dict[str, bytes]:
            secret = f"{secrets.token_hex(32)}\n".encode()
            return {**self._pair(_SERVER, _SERVER, names), "join_secret": secret}

        said = "the server; ggeur serve --cfg server.yaml"
        return self._side(_SERVER, "server.yaml", _SERVER_HEAD, settings, own, said)

    def _site(self, site: Mapping[str, Any], secret: bytes) -> bool:
        """Make a site's folder; returns whether it existed."""
        plan, name, number = self._plan, site["name"], self._number(site["name"])
        settings = {
            "data.root": "data",
            **plan.settings,
            **site["settings"],
            "ggeur.client_number": number,
            "ggeur.domain": site["domain"],
            "ggeur.join_token": "token",
        }
        if not plan.on_flower:
            settings.update(self._reached(plan.names[0], "site"))

        def own() -> dict[str, bytes]:
            token = {"token": f"{make_token(secret, number)}\n".encode()}
            if not plan.on_flower:
                return {**token, **self._pair("site", f"client {number} {name}")}
            key, public = make_node_key()
            nodes = self._out / _SERVER / _NODES
            _owners_folder(nodes)
            write_once(nodes / f"{name}.pub", public, _PRIVATE)
            return {**token, "node.key": key}

        start = "start it there by: ggeur join --cfg site.yaml"
        head = _SITE_HEAD.format(name=name, number=number)
        said = f"made for client {number}; {start}"
        return self._side(name, "site.yaml", head, settings, own, said)

    def _side(
        self,
        name: str,
        file: str,
        head: str,
        own: Mapping[str, Any],
        files: Callable[[], Mapping[str, bytes]],
        said: str,
    ) -> bool:
        """Make the folder of one side; returns whether it existed.

        Its YAML `file` begins with `head`. `files` makes its other files.
        """
        folder = self._out / name
        if os.path.lexists(folder):
            say(f"{folder}: exists already and was not changed")
            return True
        settings = {"outdir": "runs", "expname": "federation", **own}
        settings["federate.client_num"] = self._clients
        text = head + _yaml(settings)
        authority = {"authority.pem": self._authority[0]}
        _fill(folder, {**authority, **files(), file: text.encode()})
        say(f"{folder}: {said}")
        return False

    def _pair(
        self, file: str, name: str, names: Sequence[str] = ()
    ) -> dict[str, bytes]:
        """The files of a new certificate and its key."""
        days = self._plan.days
        certificate, key = make_certificate(name, self._authority, days, names)
        return {f"{file}.pem": certificate, f"{file}.key": key}

    def _reached(self, host: str, own: str) -> dict[str, Any]:
        """The settings of streams: where the server is, whom to trust, own files."""
        return {
            "ggeur.tls.certificate": f"{own}.pem",
            "ggeur.tls.key": f"{own}.key",
            "distribute.server_host": host,
            "distribute.server_port": self._plan.port,
            "ggeur.tls.authority": "authority.pem",
        }


def _owners_folder(folder: Path) -> None:
    with refusing(f"cannot make '{folder}'"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder with these files, or make nothing; only its owner can read it."""
    with refusing(f"cannot make '{folder}'"):
        write_folder(folder, files, private=True)


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
