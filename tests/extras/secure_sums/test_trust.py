"""Keys that are signed by files, or that a person has compared, are believed.

Tests of exchanges/secure_sums/confirmation.py, too: people compare by telephone, and
nothing is sent before the right words.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from sums_of import SESSION, SETTINGS, Sum, changed, clients_of, fixed_secret

from federatedscope_ggeur.crypto import public_key
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.journal import Journal
from federatedscope_ggeur.extras.secure_sums.trust import Signer, verifying_keys
from federatedscope_ggeur.extras.secure_sums.vectors import words_of


@pytest.fixture
def signed(tmp_path):
    """Settings with three clients' keys in files."""
    lines = ["# who may take part"]
    for number in (1, 2, 3):
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / f"key_{number}.pem").write_bytes(pem)
        lines.append(f"{number} {key.public_key().public_bytes_raw().hex()}")
    (tmp_path / "trust").write_text("\n".join(lines))
    return replace(
        SETTINGS,
        trust=str(tmp_path / "trust"),
        signing_key=str(tmp_path / "key_{client}.pem"),
    )


def test_signed_keys_make_the_same_sum(signed):
    clients = clients_of()
    one, other = Sum(clients, signed).run(), Sum(clients).run()
    assert one.statistics.means.equal(other.statistics.means)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("signatures", lambda r, sign: b"", "client 2 is not signed"),
        ("signatures", lambda r, sign: r.signatures[2], "not signed by that client"),
        ("signatures", lambda r, sign: sign(SESSION[::-1]), "not signed by that cli"),
        ("keys", lambda r, sign: bytes([9]) + bytes(31), "not signed by that client"),
        ("commitments", lambda r, sign: bytes(32), "not signed by that client"),
    ],
    ids=["unsigned", "of another", "of another session", "made up", "other rows"],
)
def test_other_keys_are_refused_by_name(signed, field, value, said, tmp_path):
    one = Sum(clients_of(), signed).keys()
    request = one.collector.request("counts")
    signer = Signer(str(tmp_path / "key_2.pem"), 2)

    def sign(session):
        return signer.sign(session, request.keys[1], request.commitments[1])

    first, _, third = getattr(request, field)
    changes = {field: (first, value(request, sign), third)}
    one.tamper = changed(stage="counts", client=1, **changes)
    with pytest.raises(MessageError, match=f"client 2 .*{said}|{said}"):
        one.stage("counts")


def test_a_client_that_the_file_does_not_name_is_refused(signed, tmp_path):
    lines = (tmp_path / "trust").read_text().splitlines()
    (tmp_path / "trust").write_text("\n".join(lines[:3]))  # 1 and 2
    with pytest.raises(ConfigError, match="key of client 3"):
        Sum(clients_of(), signed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 abc", "line 1"),
        (f"1 {'0' * 64}\n1 {'1' * 64}", "line 2: this client or key occurs twice"),
        (f"1 {'0' * 64}\n2 {'0' * 64}", "line 2: this client or key occurs twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, text, said):
    (tmp_path / "trust").write_text(text)
    with pytest.raises(ConfigError, match=said):
        verifying_keys(tmp_path / "trust")
    with pytest.raises(ConfigError, match="cannot be read"):
        verifying_keys(tmp_path / "nowhere")


def test_a_file_that_is_no_key_is_refused(tmp_path):
    (tmp_path / "key").write_text("no key")
    with pytest.raises(ConfigError, match="no private key"):
        Signer(str(tmp_path / "key"), 1)


CONFIRM = replace(SETTINGS, confirm=True)


@pytest.fixture
def person(monkeypatch):
    """Types lines on a terminal, which is standard input."""
    if not hasattr(os, "openpty"):
        pytest.skip("there are no pseudo-terminals on this system")
    keyboard, terminal = os.openpty()
    with open(terminal, encoding="utf-8") as stdin, open(keyboard, "wb", 0) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda *lines: keys.write("".join(f"{s}\n" for s in lines).encode())


def test_words_are_others_for_each_client_and_change_with_every_key():
    roster, keys = (1, 2, 3), [bytes([k]) * 32 for k in (1, 2, 3)]
    said = [words_of(k, roster, keys) for k in roster]
    assert len(set(said)) == 3
    assert all(re.fullmatch(r"([0-9a-f]{4} ){7}[0-9a-f]{4}", words) for words in said)
    other = [*keys[:2], bytes(32)]
    assert not set(said) & {words_of(k, roster, other) for k in roster}


def test_each_client_waits_for_the_words_of_the_next(person, capsys):
    one, plain = Sum(clients_of(), CONFIRM).keys(), Sum(clients_of()).run()
    request = one.collector.request("counts")
    words = {k: words_of(k, request.roster, request.keys) for k in (1, 2, 3)}
    loud, close = words[3].upper().replace(" ", "-"), words[1].replace(" ", "")
    person("0000", "", words[2], loud, close)
    one.stage("counts")
    shown = capsys.readouterr().err
    assert shown.count("not the words of client 2") == 2  # misheard, and typed again
    for k, listener in ((1, 3), (2, 1), (3, 2)):
        assert f"client {k}: compare keys by telephone" in shown
        assert f"read to client {listener}: {words[k]}" in shown
    # Later stages ask for nothing.
    one.stage("means").stage("pooled")
    assert one.collector.summed().statistics.means.equal(plain.statistics.means)


def refused(one, request, said):
    with pytest.raises(GGEURError, match=f"secure_sums_confirm: .*{said}") as error:
        one.participants[1].masked(request)
    assert "client 1" in str(error.value)
    assert "nothing is sent" in str(error.value)
    assert not one.sent


def test_wrong_words_are_refused_and_nothing_is_noted_as_sent(person, tmp_path):
    one = Sum(clients_of(), replace(CONFIRM, store=str(tmp_path))).keys()
    request = one.collector.request("counts")
    own = words_of(1, request.roster, request.keys)
    person(own, words_of(3, request.roster, request.keys), "no words")
    refused(one, request, "the typed words are not those of client 2")
    assert not Journal(str(tmp_path), 1).past


def test_a_terminal_that_is_closed_before_the_words_is_refused(person):
    one = Sum(clients_of(), CONFIRM).keys()
    person("\x04")  # the end of input
    refused(one, one.collector.request("counts"), "the input ended")


@pytest.mark.parametrize("stdin", ["a file", "closed", "none"])
def test_without_a_terminal_not_even_a_key_is_sent(tmp_path, monkeypatch, stdin):
    path = tmp_path / "input"
    path.write_text("words")
    with open(path, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", None if stdin == "none" else file)
        if stdin == "closed":
            file.close()
        with pytest.raises(GGEURError, match="there is no terminal to type on"):
            Sum(clients_of(), CONFIRM).keys()


def test_a_server_that_makes_up_keys_is_found_out_by_telephone(person):
    """It answers client 1 with keys of its own in the place of the others'."""
    one = Sum(clients_of(), CONFIRM).keys()
    request = one.collector.request("counts")
    made = (public_key(fixed_secret(k, session=66)()) for k in (2, 3))
    lie = replace(request, keys=(request.keys[0], *made))
    # What client 2 shows, who was sent the true keys.
    person(*[words_of(2, request.roster, request.keys)] * 3)
    refused(one, lie, "or the server sent keys")
