"""Entry point of the greeter plugin: a host framework loads this file and creates one Plugin."""

import sys
from pathlib import Path

# A host may load this file by its path alone, without adding its directory to those that Python searches.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from greeting import greet  # noqa: E402


class Plugin:
    """What a host requires of a trusted plugin; handle() is called for each event."""

    async def handle(self, action: str, payload: dict) -> dict:
        return {"status": "ok", "text": greet(payload.get("name", "world"))}
