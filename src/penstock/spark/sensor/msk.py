"""AWS_MSK_IAM: Amazon's signer makes tokens, which our Kafka client sends as OAUTHBEARER."""

import os
import re
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ConfigError

MECHANISM = "AWS_MSK_IAM"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def msk_settings(servers: str, jaas: Mapping[str, str]) -> dict[str, Any]:
    """Settings that get tokens as the Java client would: of a role, a profile, or by default.

    The region is in the names of the brokers; behind other names, in AWS_REGION.
    """
    try:
        # Its package has no types, and is no dependency: only users of Amazon's Kafka need it.
        from aws_msk_iam_sasl_signer import (  # type: ignore[import-not-found]
            MSKAuthTokenProvider as Signer,
        )
    except ModuleNotFoundError:
        package = "aws-msk-iam-sasl-signer-python"
        raise ConfigError(f"{MECHANISM} needs Amazon's signer: pip install {package}") from None
    found = _REGION.search(servers)
    region = found[1] if found else os.environ.get("AWS_REGION", "")
    if not region:
        raise ConfigError(f"{MECHANISM} needs a region: set AWS_REGION in the driver's environment")

    def token(_: object) -> tuple[str, float]:
        if role := jaas.get("awsRoleArn"):
            made = Signer.generate_auth_token_from_role_arn(region, role)
        elif profile := jaas.get("awsProfileName"):
            made = Signer.generate_auth_token_from_profile(region, profile)
        else:
            made = Signer.generate_auth_token(region)
        return made[0], made[1] / 1000.0

    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
