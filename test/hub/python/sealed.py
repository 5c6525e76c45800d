"""The encrypted artifact format: tar, then zstd, then AES-256-GCM, with an Ed25519 signature over all of it."""

import hashlib
import io
import json
import secrets
import tarfile

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NONCE_BYTES = 12


def open_sealed(sealed, signature, signer_public_key, dek):
    """The files of the tar. `decompress` needs the content size in the header of the frame."""
    verify(sealed, signature, signer_public_key)
    plain = AESGCM(dek).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
    tar = zstandard.ZstdDecompressor().decompress(plain)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in members}


def verify(sealed, signature, signer_public_key):
    """Raises InvalidSignature if the signature is wrong."""
    Ed25519PublicKey.from_public_bytes(signer_public_key).verify(signature, sealed)


def seal(files, *, has_content_size=True):
    """Seals files under a new key. Returns the fields for publishing, in bytes."""
    key = Ed25519PrivateKey.generate()
    dek, nonce = secrets.token_bytes(32), secrets.token_bytes(NONCE_BYTES)
    compressed = compress(pack(files), has_content_size)
    artifact = nonce + AESGCM(dek).encrypt(nonce, compressed, None)
    return {
        "artifact": artifact,
        "dek": dek,
        "signature": key.sign(artifact),
        "signer_public_key": key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw),
    }


def compress(tar, has_content_size):
    if has_content_size:
        return zstandard.ZstdCompressor().compress(tar)
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return compressor.compress(tar) + compressor.flush()


def pack(files):
    """A tar whose names begin with ./, as `tar -C folder .` makes them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def tree_digest(files, prefix=""):
    """SHA-256 of the lines `path:digest`, in the order of the path's components; manifest.json at the root is left out."""
    below = {name.removeprefix(prefix): content for name, content in files.items() if name.startswith(prefix)}
    names = sorted((name for name in below if prefix or name != "manifest.json"), key=lambda name: name.split("/"))
    lines = [f"{name}:{hashlib.sha256(below[name]).hexdigest()}" for name in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def manifest_of(files, *, project_id, version):
    return {
        "format_version": "1",
        "project_id": project_id,
        "project_name": "Made in Python",
        "version": version,
        "built_at": "2026-01-02T03:04:05Z",
        "plugins": [{"id": "cart", "version": version, "sha256": tree_digest(files, "plugins/cart/")}],
        "extensions": [],
        "content_sha256": tree_digest(files),
    }


def with_manifest(files, **facts):
    manifest = manifest_of(files, **facts)
    return {"manifest.json": json.dumps(manifest).encode(), **files}, manifest
