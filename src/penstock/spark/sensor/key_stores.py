"""Java key stores as PEM, which is what our Kafka client reads.

The Java process of the driver reads them: it knows all their formats, and takes the one of a file
from its content. Keys stay in memory.
"""

import base64
from contextlib import suppress
from ssl import DER_cert_to_PEM_cert
from typing import Any

from penstock.core.errors import ConfigError
from penstock.spark.internals import JVM_ERRORS, first_line


def trusted_certificates(gateway: Any, path: str, password: str | None) -> str:
    """All certificates of a trust store."""
    try:
        store = _open(gateway, path, password)
        found = [store.getCertificate(alias) for alias in _aliases(gateway, store)]
        pem = "".join(DER_cert_to_PEM_cert(each.getEncoded()) for each in found)
    except JVM_ERRORS as error:
        raise ConfigError(f"the trust store {path} cannot be read: {first_line(error)}") from None
    if not pem:
        raise ConfigError(f"the trust store {path} has no certificate; is its password missing?")
    return pem


def key_and_chain(
    gateway: Any, path: str, password: str | None, key_password: str | None
) -> tuple[str, str]:
    """The first key of a key store, and its certificates."""
    try:
        store = _open(gateway, path, password)
        aliases = [each for each in _aliases(gateway, store) if store.isKeyEntry(each)]
        if not aliases:
            raise ConfigError(f"the key store {path} has no key")
        key = store.getKey(aliases[0], _characters(gateway, key_password or password))
        lines = base64.encodebytes(_encoded(gateway, key)).decode()
        chain = [each.getEncoded() for each in store.getCertificateChain(aliases[0])]
    except JVM_ERRORS as error:
        raise ConfigError(f"the key store {path} cannot be read: {first_line(error)}") from None
    pem = f"-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n"
    return pem, "".join(map(DER_cert_to_PEM_cert, chain))


def _encoded(gateway: Any, key: Any) -> bytes:
    """The key in PKCS8. Its own class is hidden from py4j, so is the name of its algorithm."""
    java = gateway.jvm.java
    spec = java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    for algorithm in ("RSA", "EC", "EdDSA", "DSA"):
        with suppress(*JVM_ERRORS):
            factory = java.security.KeyFactory.getInstance(algorithm)
            return bytes(factory.getKeySpec(key, spec).getEncoded())
    raise ConfigError("the key of a key store is neither of RSA, EC, EdDSA nor DSA")


def _open(gateway: Any, path: str, password: str | None) -> Any:
    java = gateway.jvm.java
    return java.security.KeyStore.getInstance(java.io.File(path), _characters(gateway, password))


def _aliases(gateway: Any, store: Any) -> list[str]:
    return list(gateway.jvm.java.util.Collections.list(store.aliases()))


def _characters(gateway: Any, text: str | None) -> Any:
    """The text as Java's array of characters; a Java text would come back as a Python one."""
    if text is None:
        return None
    characters = gateway.new_array(gateway.jvm.char, len(text))
    gateway.jvm.java.lang.StringBuilder(text).getChars(0, len(text), characters, 0)
    return characters
