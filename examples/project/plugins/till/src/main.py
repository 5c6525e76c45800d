"""Entry point of the till plugin: the host framework calls handle() once for each event."""


def handle(event: dict) -> dict:
    return {"change": event["paid"] - event["total"]}
