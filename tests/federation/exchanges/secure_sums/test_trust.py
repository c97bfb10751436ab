"""Keys that are signed by files are believed, and no others."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from sums_of import SESSION, SETTINGS, Sum, changed, clients_of

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.exchanges.secure_sums.trust import (
    Signer,
    verifying_keys,
)


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
    ("fault", "said"),
    [
        ("unsigned", "client 2 is not signed"),
        ("of another", "client 2 is not signed by that client"),
        ("of another session", "client 2 is not signed by that client"),
        ("made by the server", "client 2 is not signed by that client"),
        ("beside another commitment", "client 2 is not signed by that client"),
    ],
)
def test_other_keys_are_refused_by_name(signed, fault, said, tmp_path):
    one = Sum(clients_of(), signed).keys()
    request = one.collector.request("counts")
    keys, signatures = list(request.keys), list(request.signatures)
    commitments = list(request.commitments)
    if fault == "unsigned":
        signatures[1] = b""
    elif fault == "of another":
        signatures[1] = signatures[2]
    elif fault == "of another session":
        signer = Signer(str(tmp_path / "key_2.pem"), 2)
        signatures[1] = signer.sign(SESSION[::-1], keys[1], request.commitments[1])
    elif fault == "beside another commitment":
        commitments[1] = bytes(32)
    else:
        keys[1] = bytes([9]) + bytes(31)
    one.tamper = changed(
        stage="counts",
        client=1,
        keys=tuple(keys),
        commitments=tuple(commitments),
        signatures=tuple(signatures),
    )
    with pytest.raises(MessageError, match=said):
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
