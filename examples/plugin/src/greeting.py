"""The text of the greeting, separate from the way the host calls the plugin."""


def greet(name: str) -> str:
    return f"Hello, {name.strip() or 'world'}!"
