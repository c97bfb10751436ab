"""Makes a certificate authority for a federation, and certificates signed by it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from federatedscope_ggeur.errors import ConfigError

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
    from cryptography import x509

    key, subject = _new_key(), _name(name)
    builder = _builder(subject, subject, key, _AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = _identified(builder, key, key)
    return _signed(builder, key), _pem_of(key)


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

    try:
        issuer = x509.load_pem_x509_certificate(authority[0])
        signing: Any = load_pem_private_key(authority[1], None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the authority's files cannot be used: {error}") from error
    key = _new_key()
    builder = _builder(_name(name), issuer.subject, key, days)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    use = ExtendedKeyUsageOID.CLIENT_AUTH
    if reached_at:
        use = ExtendedKeyUsageOID.SERVER_AUTH
        names = x509.SubjectAlternativeName([_alternative(n) for n in reached_at])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    builder = _identified(builder, key, signing)
    return _signed(builder, signing), _pem_of(key)


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


def _name(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # X.509 allows 64 characters.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(subject: Any, issuer: Any, key: Any, days: int) -> Any:
    from cryptography import x509

    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
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


def _identified(builder: Any, key: Any, signing: Any) -> Any:
    from cryptography import x509

    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return builder.add_extension(own, critical=False).add_extension(
        issuer, critical=False
    )


def _alternative(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _signed(builder: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def _pem_of(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
