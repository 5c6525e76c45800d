"""HTTP as the contracts need it, with the standard library only."""

import json
import secrets
import urllib.error
import urllib.request


class Refused(Exception):
    """An answer other than 2xx: its status, and the reason that a client of either contract reads from its body."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.error = body.get("error")
        self.detail = body.get("detail")


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)


def request(method, url, *, headers=None, body=None):
    """Sends exactly the given headers. Raises Refused."""
    sent = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(sent, timeout=30) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise Refused(refusal.code, json.loads(refusal.read())) from None


def get(url, headers=None):
    return request("GET", url, headers=headers)


def post_json(url, body, headers=None):
    return request(
        "POST", url, headers={"Content-Type": "application/json", **(headers or {})}, body=json.dumps(body).encode()
    )


def post_form(url, fields, file, headers=None):
    """Sends multipart/form-data: the fields, then a file as (field, file name, bytes)."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    name, filename, content = file
    disposition = f'form-data; name="{name}"; filename="{filename}"'
    head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: application/octet-stream\r\n\r\n"
    body = b"".join([*parts, head.encode(), content, f"\r\n--{boundary}--\r\n".encode()])
    content_type = f"multipart/form-data; boundary={boundary}"
    return request("POST", url, headers={"Content-Type": content_type, **(headers or {})}, body=body)
