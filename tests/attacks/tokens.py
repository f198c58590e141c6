"""Tokens of services in their real shapes, with random letters: none of them was ever valid.

They are made while the tests run, so that no scanner of secrets finds one in the repository.
"""

from __future__ import annotations

import base64
import random
import string

_LETTERS = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits


def tokens() -> dict[str, str]:
    """Name of a service → one token of it; the same on each call."""
    chance = random.Random(2026)

    def word(length: int, alphabet: str = _LETTERS) -> str:
        # The first letters of each kind, because one letter of each kind is nearly always there.
        fixed = [kind for kind in ("b", "Q", "7") if kind in alphabet][:length]
        rest = [chance.choice(alphabet) for _ in range(length - len(fixed))]
        mixed = fixed + rest
        chance.shuffle(mixed)
        return "".join(mixed)

    def hexa(length: int) -> str:
        return word(length, _HEX)

    def uuid() -> str:
        return "-".join(hexa(length) for length in (8, 4, 4, 4, 12))

    def digits(length: int) -> str:
        return "".join(chance.choice("123456789") for _ in range(length))

    def jwt(*parts: str) -> str:
        first = base64.urlsafe_b64encode(b'{"alg":"HS256"}').decode().rstrip("=")
        return ".".join([first, *parts])

    return {
        "github classic": "ghp_" + word(36),
        "github oauth": "gho_" + word(36),
        "github user": "ghu_" + word(36),
        "github server": "ghs_" + word(36),
        "github refresh": "ghr_" + word(76),
        "github fine-grained": f"github_pat_{word(22)}_{word(59)}",
        "gitlab": "glpat-" + word(20),
        "gitlab routable": f"glpat-{word(27)}.{word(2, _HEX)}.{word(9, _HEX)}",
        "gitlab deploy": "gldt-" + word(20),
        "gitlab runner": "glrt-" + word(20),
        "gitlab job": f"glcbt-64_{word(20)}",
        "gitlab trigger": "glptt-" + hexa(40),
        "bitbucket": "ATBB" + word(32),
        "atlassian": "ATATT3xFfGF0" + word(180) + "=" + hexa(8).upper(),
        "circleci": f"CCIPAT_{word(22)}_{hexa(40)}",
        "buildkite": "bkua_" + hexa(40),
        "sourcegraph": f"sgp_{hexa(16)}_{hexa(40)}",
        "sonarqube": "squ_" + hexa(40),
        "pypi": "pypi-AgEIcHlwaS5vcmc" + word(150),
        "npm": "npm_" + word(36),
        "rubygems": "rubygems_" + hexa(48),
        "docker": "dckr_pat_" + word(27),
        "docker organisation": "dckr_oat_" + word(32),
        "artifactory": "AKCp" + word(69),
        "artifactory reference": "cmVmdGtu" + word(56),
        "huggingface": "hf_" + word(34, string.ascii_letters),
        "huggingface organisation": "api_org_" + word(34, string.ascii_letters),
        "nvidia": "nvapi-" + word(64),
        "ngc": f"{word(26)}:{uuid()}",
        "ngc legacy": word(84),
        "wandb": "wandb_v1_" + word(77),
        "modelscope": "ms-" + uuid(),
        "kaggle": "KGAT_" + hexa(32),
        "replicate": "r8_" + word(37),
        "runpod": "rpa_" + word(40, _UPPER),
        "openai": f"sk-{word(20)}T3BlbkFJ{word(20)}",
        "openai project": f"sk-proj-{word(74)}T3BlbkFJ{word(74)}",
        "anthropic": f"sk-ant-api03-{word(93)}AA",
        "openrouter": "sk-or-v1-" + hexa(64),
        "deepseek": "sk-" + hexa(32),
        "langfuse": "sk-lf-" + uuid(),
        "groq": "gsk_" + word(52),
        "xai": "xai-" + word(80),
        "perplexity": "pplx-" + word(48),
        "together": "tgp_v1_" + word(43),
        "fireworks": "fw_" + word(24),
        "langsmith": f"lsv2_pt_{hexa(32)}_{hexa(10)}",
        "pinecone": f"pcsk_{word(6)}_{word(63)}",
        "aws key": "AKIA" + word(16, string.ascii_uppercase + "234567"),
        "aws session key": "ASIA" + word(16, string.ascii_uppercase + "234567"),
        "aws secret": word(40, _LETTERS + "/+"),
        "bedrock": "ABSK" + word(120),
        "google": "AIza" + word(35),
        "google access": "ya29.a0" + word(120),
        "google client": "GOCSPX-" + word(28),
        "google refresh": "1//0" + word(90),
        "azure client": f"{word(3)}8Q~{word(34)}",
        "azure storage": word(86, _LETTERS + "/+") + "==",
        "digitalocean": "dop_v1_" + hexa(64),
        "databricks": "dapi" + hexa(32),
        "alibaba": "LTAI" + word(20),
        "tencent": "AKID" + word(32),
        "yandex": f"t1.{word(60)}.{word(86)}",
        "heroku": "HRKU-AA" + word(58),
        "fly": "fo1_" + word(43),
        "netlify": "nfp_" + word(36),
        "supabase": "sbp_" + hexa(40),
        "planetscale": "pscale_tkn_" + word(43),
        "cloudflare origin": f"v1.0-{hexa(24)}-{hexa(146)}",
        "openshift": "sha256~" + word(43),
        "terraform": f"{word(14)}.atlasv1.{word(67)}",
        "pulumi": "pul-" + hexa(40),
        "prefect": "pnu_" + word(36),
        "vault": "hvs." + word(95),
        "vault batch": "hvb." + word(140),
        "doppler": "dp.pt." + word(43),
        "1password": "ops_eyJ" + word(250),
        "tailscale": f"tskey-auth-{word(12)}-{word(32)}",
        "slack bot": f"xoxb-{digits(12)}-{digits(12)}-{word(24)}",
        "slack user": f"xoxp-{digits(12)}-{digits(12)}-{digits(12)}-{hexa(32)}",
        "slack app": f"xapp-1-{word(11, _UPPER)}-{digits(13)}-{hexa(64)}",
        "telegram": f"{digits(10)}:AA{word(33)}",
        "discord": f"M{word(24)}.{word(6)}.{word(38)}",
        "sendgrid": f"SG.{word(22)}.{word(43)}",
        "mailgun": "key-" + hexa(32),
        "mailchimp": hexa(32) + "-us14",
        "twilio": "SK" + hexa(32),
        "stripe": "sk_live_" + word(24),
        "stripe restricted": "rk_live_" + word(24),
        "stripe webhook": "whsec_" + word(32),
        "elevenlabs": "sk_" + hexa(48),
        "square": "sq0atp-" + word(22),
        "shopify": "shpat_" + hexa(32),
        "grafana": f"glsa_{word(32)}_{hexa(8)}",
        "sentry": "sntryu_" + hexa(64),
        "new relic": "NRAK-" + word(27, _UPPER),
        "postman": f"PMAK-{hexa(24)}-{hexa(34)}",
        "figma": "figd_" + word(40),
        "linear": "lin_api_" + word(40),
        "notion": "ntn_" + digits(11) + word(35),
        "dropbox": "sl.u." + word(130),
        "age": "AGE-SECRET-KEY-1" + word(58, _UPPER),
        "airtable": f"pat{word(14)}.{hexa(64)}",
        "jwt": jwt("eyJzdWIiOiIxMjM0In0", word(43)),
    }
