"""The network and disk code that the Python agents share, with the standard library only."""

import ctypes
import json
import os
import shutil
import urllib.request
from datetime import datetime, timezone

CHUNK_BYTES = 1024 * 1024


def now():
    return datetime.now(timezone.utc).isoformat()


def call(url, headers=None, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **(headers or {})}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        return json.load(answer)


def download(url, path, headers=None, digest=None):
    """Streams the response to a file and through the digest, if there is one. Returns the response's headers."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})) as answer, open(path, "wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            file.write(chunk)
            if digest is not None:
                digest.update(chunk)
        return answer.headers


def put_in_place(source, project_root, slug):
    """Sets the old tree aside and copies the new one into place, durably."""
    place = os.path.join(project_root, "plugins", slug)
    if os.path.exists(place):
        os.rename(place, os.path.join(project_root, ".previous"))
    shutil.copytree(source, place)
    sync_file_system(place)


def sync_file_system(path):
    folder = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None).syncfs(folder) != 0:
            raise OSError("syncfs failed")
    finally:
        os.close(folder)
