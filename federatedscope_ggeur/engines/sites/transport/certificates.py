"""Makes a certificate authority for a federation, and certificates signed by it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from federatedscope_ggeur.errors import ConfigError, refusing

_AUTHORITY_DAYS = 3650


def require_cryptography() -> None:
    """Raise `ConfigError` if the package cryptography is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "certificates: the package cryptography is not installed: "
            "pip install 'federatedscope-ggeur[privacy]'"
        ) from error


def make_authority(name: str) -> tuple[bytes, bytes]:
    """Make a new authority; returns its certificate, for ten years, and key, as PEM."""
    key = _new_key()
    return _certified(name, key, None, key, _AUTHORITY_DAYS)


def make_certificate(
    name: str, authority: tuple[bytes, bytes], days: int, reached_at: Sequence[str] = ()
) -> tuple[bytes, bytes]:
    """Make a certificate signed by the authority; returns it and its key, as PEM.

    Parameters
    ----------
    name : str
    authority : (certificate, key), as returned by `make_authority`
    days : int
        For how many days the certificate is valid.
    reached_at : sequence of str
        For a server: the host names and IP addresses at which clients reach it. If it
        is empty, the certificate is for a client.

    Raises
    ------
    ConfigError
        The authority's certificate or key is invalid.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    with refusing("the authority's files cannot be used"):
        issuer = x509.load_pem_x509_certificate(authority[0])
        signing: Any = load_pem_private_key(authority[1], None)
    use, more = ExtendedKeyUsageOID.CLIENT_AUTH, list[Any]()
    if reached_at:
        use = ExtendedKeyUsageOID.SERVER_AUTH
        more = [x509.SubjectAlternativeName([_alternative(n) for n in reached_at])]
    more.append(x509.ExtendedKeyUsage([use]))
    return _certified(name, _new_key(), issuer.subject, signing, days, more)


def make_node_key() -> tuple[bytes, bytes]:
    """A new key of a Flower SuperNode: the private and the public half, for OpenSSH."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + b"\n"


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certified(
    name: str, key: Any, issuer: Any, signing: Any, days: int, more: Sequence[Any] = ()
) -> tuple[bytes, bytes]:
    """A certificate for `key`, signed by another key, and `key` itself, as PEM.

    Without an `issuer` it is that of an authority, which signs itself.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    signs = issuer is None
    # X.509 allows 64 characters.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now, public = datetime.now(timezone.utc), key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signs else issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(signs, 0 if signs else None), True)
        .add_extension(usage, critical=True)
    )
    for extension in (
        *more,
        x509.SubjectKeyIdentifier.from_public_key(public),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
    ):
        builder = builder.add_extension(extension, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    signed = builder.sign(signing, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM), private


def _alternative(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
