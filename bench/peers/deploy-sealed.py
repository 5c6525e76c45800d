"""Deploys under the proposed hub contract, as a Python agent would. Takes the same variables as deploy-sealed.sh."""

import base64
import os
import shutil
import subprocess
import tarfile
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hub_client import call, download, now, put_in_place

NONCE_BYTES = 12


def main():
    hub, slug, root, work = (os.environ[name] for name in ("HUB_URL", "SLUG", "PROJECT_ROOT", "WORK"))
    started = now()
    token = call(f"{hub}/v1/auth", body={"xdevkey": os.environ["API_KEY"], "project_id": slug})["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    version = call(f"{hub}/v1/projects/{slug}/versions/latest", bearer)["version"]
    descriptor = call(f"{hub}/v1/projects/{slug}/artifacts/{version}", bearer)
    if descriptor["signer_public_key"] != os.environ["SIGNER_PUBLIC_KEY"]:
        raise SystemExit("The signer is not trusted.")
    sealed = fetch_verified(descriptor, os.path.join(work, "sealed"))

    wanted = {"deployment_credential": os.environ["DEPLOYMENT_CREDENTIAL"], "artifact_signature": descriptor["signature"]}
    dek = base64.b64decode(call(f"{hub}/v1/deployments/authorize", bearer, wanted)["dek"])
    extracted = os.path.join(work, "extracted")
    unpack(AESGCM(dek).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None), work, extracted)
    put_in_place(os.path.join(extracted, "plugins", slug), root, slug)
    shutil.rmtree(extracted)

    report = {"project_id": slug, "deployment_id": str(uuid.uuid4()), "status": "success", "version": version}
    report |= {"started_at": started, "completed_at": now(), "plugins": [{"id": slug, "version": version}]}
    call(f"{hub}/v1/deployments/report", bearer, report)


def fetch_verified(descriptor, path):
    download(descriptor["download_url"], path)
    with open(path, "rb") as file:
        sealed = file.read()
    os.remove(path)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(descriptor["signer_public_key"]))
    key.verify(base64.b64decode(descriptor["signature"]), sealed)
    return sealed


def unpack(compressed, work, folder):
    """Uses the program zstd, because the standard library has no zstd before Python 3.14."""
    path = os.path.join(work, "opened.tar.zst")
    with open(path, "wb") as file:
        file.write(compressed)
    with subprocess.Popen(["zstd", "-dqc", path], stdout=subprocess.PIPE) as zstd:
        with tarfile.open(fileobj=zstd.stdout, mode="r|") as tar:
            tar.extractall(folder, filter="data")
    os.remove(path)


main()
