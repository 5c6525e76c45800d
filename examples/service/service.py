"""The clock service: answers every request with the time in UTC, as JSON."""

import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from os import environ


class Clock(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"now": datetime.now(UTC).isoformat()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(environ.get("CLOCK_PORT", "8090"))), Clock).serve_forever()
