"""The words of the greeting, apart from how the host calls the plugin."""


def greet(name: str) -> str:
    return f"Hello, {name.strip() or 'world'}!"
