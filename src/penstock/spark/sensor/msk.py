"""AWS_MSK_IAM: Amazon's signer makes tokens, which our Kafka client sends as OAUTHBEARER."""

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

MECHANISM = "AWS_MSK_IAM"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def msk_settings(servers: str, jaas: Mapping[str, str]) -> dict[str, Any]:
    """Settings that get tokens as the Java client would: of a role, a profile, or by default.

    The region is in the names of the brokers; behind other names, in AWS_REGION.
    """
    try:
        # Its package has no types, and is no dependency: only users of Amazon's Kafka need it.
        from aws_msk_iam_sasl_signer import (  # type: ignore[import-untyped]
            MSKAuthTokenProvider as Signer,
        )
    except ModuleNotFoundError:
        package = "'penstock[msk]'"
        raise ConfigError(f"{MECHANISM} needs Amazon's signer: pip install {package}") from None
    found = _REGION.search(servers)
    region = found[1] if found else os.environ.get("AWS_REGION", "")
    if not region:
        raise ConfigError(f"{MECHANISM} needs a region: set AWS_REGION in the driver's environment")

    def token(_: object) -> tuple[str, float]:
        try:
            if "awsRoleArn" in jaas:
                provider = _role_of(jaas, region)
                made = Signer.generate_auth_token_from_credentials_provider(region, provider)
            elif profile := jaas.get("awsProfileName"):
                made = Signer.generate_auth_token_from_profile(region, profile)
            else:
                made = Signer.generate_auth_token(region)
        except Exception as error:
            # The Kafka client says no more than that there was no token.
            log.warning("no token for %s: %s", MECHANISM, error)
            raise
        return made[0], made[1] / 1000.0

    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}


def _role_of(jaas: Mapping[str, str], region: str) -> Any:
    """Where the signer gets the credentials of a role.

    By itself it asks for them in the default region only, which jobs often have none of.
    """
    import boto3  # type: ignore[import-untyped]
    from botocore.credentials import (  # type: ignore[import-untyped]
        CredentialProvider,
        Credentials,
    )

    class Role(CredentialProvider):  # type: ignore[misc]
        def load(self) -> Any:
            session = boto3.session.Session(region_name=jaas.get("awsStsRegion", region))
            name = jaas.get("awsRoleSessionName", "penstock")
            asked = {"RoleArn": jaas["awsRoleArn"], "RoleSessionName": name}
            if outside := jaas.get("awsRoleExternalId"):
                asked["ExternalId"] = outside
            found = session.client("sts").assume_role(**asked)["Credentials"]
            keys = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            return Credentials(*(found[key] for key in keys))

    return Role()
