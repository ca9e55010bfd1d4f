"""A kit in a private bucket of Backblaze B2: an address, and a token for that one name."""

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from ninfer.connect import read_dotenv
from ninfer.errors import ProviderError, RefusedError, UsageError

_API: Final = "https://api.backblazeb2.com"
_CALLS: Final = "/b2api/v3"
# As long as a slow machine may take until it begins to download.
GRANTED_SECONDS: Final = 7200
_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key of the store, read from a file; `api` is where the store's calls begin."""

    key_id: str
    key: str = field(repr=False)
    bucket: str
    api: str = _API


def read_credentials(path: Path) -> Credentials:
    """B2_KEY_ID, B2_APPLICATION_KEY and B2_BUCKET_NAME of a file that is read, never executed.

    Raises UsageError for a file that is not there, lacks one, or that others may read.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        values = read_dotenv(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"NINFER_B2_ENV {path}: {error}") from None
    if mode & 0o077:
        raise UsageError(f"{path} holds secrets and has mode {mode:03o}; run chmod 600 {path}")
    names = ("B2_KEY_ID", "B2_APPLICATION_KEY", "B2_BUCKET_NAME")
    missing = [name for name in names if not values.get(name)]
    if missing:
        raise UsageError(f"{path}: lacks {', '.join(missing)}")
    key_id, key, bucket = (values[name] for name in names)
    return Credentials(key_id, key, bucket, values.get("B2_API_URL", _API).rstrip("/"))


def grant(credentials: Credentials, name: str) -> tuple[str, str]:
    """The address of an object, without a secret in it, and a token that reads only that name.

    Raises RefusedError when the store says no, ProviderError when it cannot be asked.
    """
    with httpx.Client(timeout=_TIMEOUT) as client:
        account = _call(
            client,
            "GET",
            f"{credentials.api}{_CALLS}/b2_authorize_account",
            auth=(credentials.key_id, credentials.key),
        )
        try:
            store = account["apiInfo"]["storageApi"]
            token, api, download = (
                account["authorizationToken"],
                store["apiUrl"],
                store["downloadUrl"],
            )
            header = {"Authorization": str(token)}
            bucket = _bucket(client, credentials, account, store, header)
            body = {
                "bucketId": bucket,
                "fileNamePrefix": name,
                "validDurationInSeconds": GRANTED_SECONDS,
            }
            url = f"{api}{_CALLS}/b2_get_download_authorization"
            granted = _call(client, "POST", url, json=body, headers=header)["authorizationToken"]
        except (KeyError, TypeError, IndexError):
            raise ProviderError(f"{credentials.api}: an answer of a shape nobody knows") from None
    return f"{download}/file/{quote(credentials.bucket)}/{quote(name)}", str(granted)


def _bucket(
    client: httpx.Client,
    credentials: Credentials,
    account: Mapping[str, Any],
    store: Mapping[str, Any],
    header: Mapping[str, str],
) -> str:
    """The bucket's id: that of the key, if it is for one bucket, else asked for by name."""
    if store.get("bucketName") == credentials.bucket and store.get("bucketId"):
        return str(store["bucketId"])
    body = {"accountId": account["accountId"], "bucketName": credentials.bucket}
    url = f"{store['apiUrl']}{_CALLS}/b2_list_buckets"
    buckets = _call(client, "POST", url, json=body, headers=header)["buckets"]
    if not buckets:
        raise RefusedError(f"{credentials.bucket}: no such bucket for this key")
    return str(buckets[0]["bucketId"])


def _call(client: httpx.Client, method: str, url: str, **options: Any) -> Any:
    try:
        answer = client.request(method, url, **options)
        body = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ProviderError(f"{url}: {type(error).__name__}") from None
    if answer.status_code != 200:
        said = body.get("message") if isinstance(body, Mapping) else ""
        kind = RefusedError if answer.status_code in (400, 401, 403, 404) else ProviderError
        raise kind(f"{url}: {answer.status_code} {said}")
    return body
