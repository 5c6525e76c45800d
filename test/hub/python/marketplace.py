"""A client of the marketplace contract, written from its specification alone (contract 4.1 and 4.3)."""

import hashlib
import hmac
import io
import zipfile

from wire import get, post_json

SEGMENTS = {"plugin": "plugins", "service": "services"}


class Marketplace:
    """`base` has the base URLs of the routes of plugins, of services, and of deployments (reports and hosts)."""

    def __init__(self, base, api_key):
        self.base = base
        self.key = {"X-API-Key": api_key}

    def latest(self, kind, slug):
        """Public: sends no key (contract 4.3, rule 1)."""
        return get(self._listing(kind, slug)).json()["latest_version"]

    def fetch(self, kind, slug, version="latest"):
        return get(f"{self._listing(kind, slug)}/install?version={version}", self.key)

    def report(self, kind, slug, **fields):
        body = {"kind": kind, "slug": slug, "repo": None, "error_message": None, **fields}
        return post_json(f"{self.base['deployments']}/deployments/report", body, self.key).json()

    def hosts(self, kind, slug):
        return get(f"{self.base['deployments']}/deployments/{kind}/{slug}/hosts", self.key).json()

    def _listing(self, kind, slug):
        return f"{self.base[kind]}/{SEGMENTS[kind]}/{slug}"


def create_key(base, admin_token, name):
    return post_json(f"{base}/devkeys/api-keys", {"name": name}, {"Authorization": f"Bearer {admin_token}"}).json()


def verify(artifact, signing_secret):
    """HMAC-SHA256 over the bytes of the ZIP (contract 4.3, rule 3)."""
    algorithm, _, digest = artifact.headers["X-Signature"].partition(":")
    expected = hmac.new(signing_secret.encode(), artifact.body, hashlib.sha256).hexdigest()
    return algorithm == "hmac_sha256" and hmac.compare_digest(digest, expected)


def unpack(artifact):
    """The files of the ZIP, without its single top-level directory (contract 4.3, rule 5)."""
    with zipfile.ZipFile(io.BytesIO(artifact.body)) as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    tops = {name.split("/")[0] for name in files}
    if len(tops) == 1 and all("/" in name for name in files):
        return {name.split("/", 1)[1]: content for name, content in files.items()}
    return files
