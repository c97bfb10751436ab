"""What a client refuses of a server that wants more than one sum, by name."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from sums_of import SESSION, SETTINGS, Sum, changed, clients_of, fixed_secret, rows

from federatedscope_ggeur.crypto import public_key
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.journal import Journal
from federatedscope_ggeur.extras.secure_sums.participant import Participant
from federatedscope_ggeur.extras.secure_sums.trust import Signer, verifying_keys
from federatedscope_ggeur.extras.secure_sums.vectors import words_of
from federatedscope_ggeur.federation import wire
from federatedscope_ggeur.federation.kept_file import row_digests

OTHER = SESSION[::-1]


def asked(**fields):
    """The request for keys, with other fields, and the first client's participant."""
    one = Sum(clients_of())
    return one.participants[1], replace(one.collector.keys_request(), **fields)


class TestKeys:
    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"min_clients": 2}, "min_clients"),
            ({"min_samples": 1}, "min_samples"),
            ({"radius": 5.0}, "radius"),
            ({"max_rows": 7}, "max_rows"),
            ({"fraction_bits": 12}, "fraction_bits"),
            ({"roster": (1, 2)}, "roster"),
            ({"roster": (2, 3, 4)}, "roster"),
        ],
    )
    def test_other_settings_than_its_own_are_refused(self, fields, field):
        client, request = asked(**fields)
        with pytest.raises(MessageError) as error:
            client.key(request)
        assert error.value.field == field

    def test_the_same_session_gets_the_same_key_and_another_a_fresh_one(self):
        x, y = rows(1, 8)
        client = Participant(1, x, y, SETTINGS)
        request = Sum(clients_of()).collector.keys_request()
        assert client.key(request) == client.key(request)
        other = client.key(replace(request, session=OTHER))
        assert other.key != client.key(request).key

    def test_another_roster_in_the_same_session_is_refused(self):
        client, request = asked()
        client.key(request)
        with pytest.raises(MessageError, match="roster has changed"):
            client.key(replace(request, roster=(1, 2, 4)))

    def test_a_row_that_is_too_long_ends_it_without_saying_how_long(self, caplog):
        x, y = rows(1, 8)
        client = Participant(1, x * 30, y, SETTINGS)
        with pytest.raises(GGEURError, match="secure_sums_radius") as error:
            client.key(Sum(clients_of()).collector.keys_request())
        norm = f"{float((x * 30).double().norm(dim=1).max()):.4g}"
        assert norm in caplog.text
        assert norm not in str(error.value)


MADE = public_key(bytes(range(32)))


def put(items, place, value):
    return (*items[:place], value, *items[place:][1:])


def added(tensor, place, number):
    changed = tensor.clone()
    changed[place] += number
    return changed


def with_a_row_more(request):
    """What follows if client 2 seems to have a row more of the first class."""
    vectors = added(request.vectors, (1, int(request.classes[0])), 1)
    totals = vectors.sum(dim=0)
    classes = torch.nonzero(totals >= 3).flatten()
    return {"classes": classes, "counts": totals[classes], "vectors": vectors}


#: What client 1 is sent in a stage, and what it says. Where that is nothing it cannot
#: know, and masks do not cancel.
LIES = {
    "another session": ("counts", lambda r: {"session": OTHER}, "has sent no key for"),
    "another roster": ("counts", lambda r: {"roster": (1, 2, 4)}, "roster has changed"),
    "a later stage": ("counts", lambda r: {"stage": "means"}, "expected 'counts'"),
    "another key of its own": (
        *("counts", lambda r: {"keys": put(r.keys, 0, MADE)}),
        "changed the key of client 1",
    ),
    "two equal keys": (
        *("counts", lambda r: {"keys": put(r.keys, 2, r.keys[1])}),
        "two clients have the same key",
    ),
    "other keys later": (
        *("means", lambda r: {"keys": put(r.keys, 2, MADE)}),
        "keys have changed",
    ),
    "a key of the server's": ("counts", lambda r: {"keys": put(r.keys, 2, MADE)}, ""),
    "a class below": (
        "means",
        lambda r: {
            "classes": torch.arange(5),
            "counts": torch.cat([r.counts, r.counts[:1]])[:5],
        },
        "field 'classes'",
    ),
    "a class left out": (
        *("means", lambda r: {"classes": r.classes[1:], "counts": r.counts[1:]}),
        "field 'classes'",
    ),
    "other counts": (
        *("means", lambda r: {"counts": added(r.counts, 0, 1)}),
        "field 'classes'",
    ),
    "vectors of too many rows": (
        *("means", lambda r: {"vectors": added(r.vectors, (1, 0), 2**60)}),
        "field 'vectors'",
    ),
    "another vector of its own": (
        *("means", lambda r: {"vectors": added(r.vectors, (0, 0), 1)}),
        "field 'vectors'",
    ),
    "classes that follow": ("means", with_a_row_more, ""),
    **{
        f"an origin of {value}": (
            *("pooled", lambda r, v=value: {"origin": torch.full_like(r.origin, v)}),
            "field 'origin'",
        )
        for value in (0.7, float("nan"), float("inf"))
    },
    "another origin": ("pooled", lambda r: {"origin": r.origin * 0.5}, ""),
}


@pytest.mark.parametrize(("stage", "lie", "said"), LIES.values(), ids=LIES)
def test_what_one_client_alone_is_sent_is_refused_or_noticed(stage, lie, said):
    one = Sum(clients_of(sizes=(9, 5, 6), seed=2)).keys()
    for earlier in SETTINGS.stages[: SETTINGS.stages.index(stage)]:
        one.stage(earlier)
    request = one.collector.request(stage)
    assert len(request.classes) < 5, "every class is named; take another seed"
    if said:
        with pytest.raises(MessageError, match=said):
            one.participants[1].masked(replace(request, **lie(request)))
        return
    one.tamper = changed(stage=stage, client=1, **lie(request))
    with pytest.raises(GGEURError, match=f"stage '{stage}' is impossible"):
        one.stage(stage)


def test_a_refusal_says_nothing_of_how_many_rows_a_client_has():
    """Others' counts that the server has made small are taken for true: masks do not
    cancel."""
    for more in (9, 3):
        x, y = rows(7, more)
        held = {**clients_of(), 1: (x, torch.zeros_like(y))}
        one = Sum(held).keys().stage("counts")
        request = one.collector.request("means")
        least = SETTINGS.min_samples
        vectors = request.vectors.clone()
        vectors[2] = least - vectors[0] - vectors[1]
        named = {"classes": torch.arange(5), "counts": torch.full((5,), least)}
        one.participants[1].masked(replace(request, vectors=vectors, **named))


def test_on_one_machine_one_line_has_the_keys_of_all(caplog, tmp_path):
    caplog.set_level("INFO")
    Sum(clients_of()).run()
    (line,) = [text for text in caplog.messages if "keys of the roster" in text]
    assert line.startswith("keys of the roster [1, 2, 3]: ")
    caplog.clear()
    Sum(clients_of(), replace(SETTINGS, store=str(tmp_path))).run()
    lines = [text for text in caplog.messages if "keys of the roster" in text]
    assert lines == [f"client {k}: {line}" for k in (1, 2, 3)]


# A client that starts again goes on with the same session and the same bytes.


@pytest.fixture
def settings(tmp_path):
    return replace(SETTINGS, store=str(tmp_path / "sums"))


def restarted(one, number):
    """The same client in a new process, which would draw another key."""
    x, y = one.clients[number]
    make = fixed_secret(number, session=99)
    one.participants[number] = Participant(number, x, y, one.settings, make)


@pytest.mark.parametrize("stage", SETTINGS.stages)
def test_after_a_restart_the_sum_is_the_same(settings, stage):
    plain = Sum(clients_of()).run().statistics
    one = Sum(clients_of(), settings).keys()
    for now in SETTINGS.stages:
        if now == stage:
            for number in one.clients:
                restarted(one, number)
        one.stage(now)
    held = one.collector.summed().statistics
    assert held.means.equal(plain.means)
    assert held.scatter().equal(plain.scatter())


def test_what_was_sent_before_a_restart_is_sent_again(settings):
    one = Sum(clients_of(), settings).keys().stage("counts").stage("means")
    request = one.collector.request("pooled")
    first = one.participants[2].masked(request).to_bytes()
    restarted(one, 2)
    assert one.participants[2].masked(request).to_bytes() == first
    other = replace(request, origin=request.origin * 0.5)
    with pytest.raises(MessageError, match="other contents"):
        one.participants[2].masked(other)


def test_the_secret_is_gone_once_the_last_stage_is_sent(settings):
    one = Sum(clients_of(), settings).keys()
    secret = fixed_secret(2)()
    path = f"{settings.store}/client_0002.sums"
    one.stage("counts").stage("means")
    assert secret in Path(path).read_bytes()
    one.stage("pooled")
    assert secret not in Path(path).read_bytes()
    assert Journal(settings.store, 2).current.secret == b""


def test_nothing_is_sent_that_could_not_be_noted(settings, tmp_path):
    (tmp_path / "sums").write_text("a file where the folder would be")
    with pytest.raises(ConfigError, match="secure_sums_store"):
        Sum(clients_of(), settings).keys()


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        *(("sums", fault) for fault in ("cut", "changed", "another's")),
        *(("salt", fault) for fault in ("cut", "missing", "another's")),
    ],
)
def test_files_that_are_damaged_or_another_client_s_are_refused(settings, end, fault):
    """With a new salt all rows would pass for new."""
    Sum(clients_of(), settings).run()
    path = Path(settings.store) / f"client_0001.{end}"
    data, others = path.read_bytes(), path.with_name(f"client_0002.{end}").read_bytes()
    spoilt = {
        "cut": data[:-1],
        "changed": data[:-1] + bytes([data[-1] ^ 1]),
        "another's": others,
    }
    path.unlink()
    if fault in spoilt:
        path.write_bytes(spoilt[fault])
    said = r"client_0001\.sums' cannot be used" + (".*salt" if end == "salt" else "")
    with pytest.raises(ConfigError, match=said):
        Journal(settings.store, 1)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Sum(clients_of()).run()
    assert not list(tmp_path.iterdir())


def test_repeated_sums_take_no_more_room(settings):
    clients = clients_of()
    sizes = []
    for i in range(3):
        Sum(clients, settings, session=bytes([i] * 16), generation=i).run()
        sizes.append(len(Path(f"{settings.store}/client_0001.sums").read_bytes()))
    assert len(Journal(settings.store, 1).past) == 1
    assert sizes[2] == sizes[1] == sizes[0]


LABELLED = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4
)


@given(LABELLED, LABELLED, st.booleans())
def test_digests_are_alike_where_rows_are(one, other, back):
    """A row is a number here, and a class its name; -0 is 0."""

    def digests(labelled, salt=bytes(32), sign=1, names=("a", "b")):
        x = sign * torch.tensor([[float(row)] * 3 for row, _ in labelled])
        y = torch.tensor([names.index("ab"[c]) for _, c in labelled])
        return row_digests(x, y, names, salt)

    names = ("b", "a") if back else ("a", "b")
    here, there = digests(one), digests(other, names=names)
    assert (here.whole == there.whole) == (sorted(one) == sorted(other))
    shared = {row for row, _ in one} & {row for row, _ in other}
    assert len(here.rows & there.rows) == len(shared)
    salted = digests(one, salt=bytes([1]) * 32)
    assert not here.rows & salted.rows
    assert here.whole != salted.whole
    if not any(row for row, _ in one):
        assert digests(one, sign=-1) == here


def test_the_salt_is_never_sent(settings):
    one = Sum(clients_of(), settings)
    salt = (Path(settings.store) / "client_0001.salt").read_bytes()
    one.run()
    sent = [v.numpy().tobytes() for v in one.sent.values()]
    assert len(salt) == 32
    assert not any(salt in data for data in [*one.down, *one.up, *sent])


def test_a_journal_of_an_earlier_version_is_refused_and_stays(settings):
    """As that version wrote it: digests with the numbers of classes, no salt."""
    Sum(clients_of(), settings).run()
    path = Path(settings.store) / "client_0001.sums"
    (path.parent / "client_0001.salt").unlink()
    message = wire.unpack(path.read_bytes(), "sums journal", "test")
    numbers = {
        name: value
        for name, value in message._numbers.items()
        if name not in ("form", "salt", "checksum")
    }
    tensors = message._tensors
    data = wire.pack("sums journal", wire.sealed(numbers, tensors), tensors)
    path.write_bytes(data)
    with pytest.raises(ConfigError) as error:
        Journal(settings.store, 1)
    assert "another version of this program wrote it" in str(error.value)
    assert "Name another folder" in str(error.value)
    assert path.read_bytes() == data


# Keys that are signed by files, or that a person has compared, are believed.
#
# People compare by telephone, and nothing is sent before the right words.


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
