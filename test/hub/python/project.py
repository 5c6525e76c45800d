"""A client of the proposed hub contract, written from its specification alone (contract 4.2 and 5.2)."""

import base64
import json

import sealed
from wire import get, post_form, post_json


def encode(data):
    return base64.b64encode(data).decode()


class ProjectHub:
    def __init__(self, base, project_id):
        self.base = base
        self.project = project_id
        self.bearer = {}

    def log_in(self, devkey):
        answer = post_json(f"{self.base}/v1/auth", {"xdevkey": devkey, "project_id": self.project}).json()
        self.bearer = {"Authorization": f"Bearer {answer['access_token']}"}

    def latest(self):
        return get(f"{self.base}/v1/projects/{self.project}/versions/latest", self.bearer).json()["version"]

    def descriptor(self, version):
        return get(f"{self.base}/v1/projects/{self.project}/artifacts/{version}", self.bearer).json()

    def download(self, descriptor):
        """Sends no token: the URL may lead to another host (contract 2.2)."""
        return get(descriptor["download_url"]).body

    def authorize(self, credential, descriptor):
        body = {"deployment_credential": credential, "artifact_signature": descriptor["signature"]}
        answer = post_json(f"{self.base}/v1/deployments/authorize", body, self.bearer).json()
        return base64.b64decode(answer["dek"])

    def fetch(self, credential, version):
        """Gets the artifact, its key and its files, in the order of contract 5.2. Returns the manifest."""
        descriptor = self.descriptor(version)
        artifact = self.download(descriptor)
        signature, public_key = (base64.b64decode(descriptor[name]) for name in ("signature", "signer_public_key"))
        sealed.verify(artifact, signature, public_key)
        dek = self.authorize(credential, descriptor)
        files = sealed.open_sealed(artifact, signature, public_key, dek)
        manifest = json.loads(files["manifest.json"])
        if manifest["content_sha256"] != sealed.tree_digest(files):
            raise ValueError("content_sha256 differs")
        return manifest

    def report(self, manifest, **fields):
        """Some clients leave the id and the times to the hub."""
        empty = {"deployment_id": "", "started_at": "", "completed_at": ""}
        body = {"project_id": self.project, "version": manifest["version"], "plugins": manifest["plugins"], **empty}
        return post_json(f"{self.base}/v1/deployments/report", {**body, **fields}, self.bearer).json()

    def publish(self, devkey, made, *, version, manifest):
        fields = {name: encode(made[name]) for name in ("dek", "signature", "signer_public_key")}
        fields |= {"version": version, "project_name": manifest["project_name"]}
        fields |= {"content_sha256": manifest["content_sha256"]}
        url = f"{self.base}/v1/projects/{self.project}/publish"
        file = ("artifact", "artifact.sealed", made["artifact"])
        return post_form(url, fields, file, {"X-API-Key": devkey}).json()
