"""Entry point of the greeter plugin: the host framework calls handle() once for each event."""

from greeting import greet


def handle(event: dict) -> dict:
    return {"text": greet(event.get("name", "world"))}
