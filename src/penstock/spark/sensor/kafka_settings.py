"""Settings for Penstock's Kafka client, from the options of the query's Kafka source.

The options of the query are those of the Java client. Penstock uses librdkafka, which has other
names for some of them and reads other kinds of key files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.core.errors import ConfigError

# Options of the Java client, and what librdkafka calls them. Of others it has no need.
_SAME = (
    "bootstrap.servers",
    "client.dns.lookup",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "security.protocol",
    "ssl.cipher.suites",
    "ssl.key.password",
    "ssl.keystore.password",
)
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_JAAS_LOGIN = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "principal": "sasl.kerberos.principal",
    "keyTab": "sasl.kerberos.keytab",
}
_JAAS_PAIR = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for Penstock's client from the options of a Kafka source, security included.

    >>> settings = client_settings({
    ...     "subscribe": "bids",
    ...     "kafka.bootstrap.servers": "b1:9092,b2:9092",
    ...     "kafka.security.protocol": "SASL_SSL",
    ...     "kafka.sasl.mechanism": "SCRAM-SHA-512",
    ...     "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule '
    ...                               'required username="reader" password="a\\\\"b";',
    ... })
    >>> settings["sasl.username"], settings["sasl.password"], settings["security.protocol"]
    ('reader', 'a"b', 'SASL_SSL')
    """
    prefix = "kafka."
    given = {
        key.lower().removeprefix(prefix): value
        for key, value in options.items()
        if key.lower().startswith(prefix)
    }
    if not given.get("bootstrap.servers"):
        raise ConfigError("the Kafka source has no option kafka.bootstrap.servers")
    settings = {key: given[key] for key in _SAME if key in given}
    settings |= {ours: given[theirs] for theirs, ours in _RENAMED.items() if theirs in given}
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        settings["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    if "sasl.oauthbearer.token.endpoint.url" in settings:
        settings["sasl.oauthbearer.method"] = "oidc"
    for key, quoted, bare in _JAAS_PAIR.findall(given.get("sasl.jaas.config", "")):
        if key in _JAAS_LOGIN:
            settings[_JAAS_LOGIN[key]] = re.sub(r"\\(.)", r"\1", quoted) or bare
    return settings | _store_settings(given)


def _store_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Files with certificates and keys. librdkafka reads PEM and, for keys, PKCS12; never JKS."""
    settings = {}
    trusted = given.get("ssl.truststore.location")
    if trusted is not None:
        if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise ConfigError(
                f"the trust store {trusted} is not PEM, which is all that our Kafka client reads: "
                "give its certificates as ssl.ca.location in the Kafka settings of Penstock"
            )
        settings["ssl.ca.location"] = trusted
    keys = given.get("ssl.keystore.location")
    if keys is not None:
        kind = given.get("ssl.keystore.type", "JKS").upper()
        if kind == "PEM":
            settings |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
        elif kind == "PKCS12":
            settings["ssl.keystore.location"] = keys
        else:
            raise ConfigError(
                f"the key store {keys} is {kind}, which our Kafka client cannot read: "
                "give it as ssl.keystore.location (PKCS12) in the Kafka settings of Penstock"
            )
    return settings
