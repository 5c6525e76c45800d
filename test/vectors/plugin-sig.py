"""Makes plugin-sig.json, the known answers for plugin.sig, independently of this repository's code:

    python3 test/vectors/plugin-sig.py > test/vectors/plugin-sig.json

It follows only the description of the format in docs/files.md. Tests read the JSON and do not need Python.
"""
import hashlib
import hmac
import json
import os
import pathlib
import sys
import tempfile

LEFT_OUT = {"__pycache__", ".git", ".mypy_cache", ".pytest_cache", "plugin.sig", "plugin.yaml", "plugin.json", "*.md", "*.json"}


def sign(root: pathlib.Path, plugin_id: str, fields: dict, secret: str) -> str:
    mac = hmac.new(secret.encode("utf-8"), digestmod=hashlib.sha256)
    mac.update((root / "plugin.yaml").read_bytes())
    directory = (root / fields.get("entry_point", "src/main.py")).parent
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in sorted(files, key=lambda path: path.relative_to(root).parts):
        relative = path.relative_to(root)
        if set(relative.parts) & LEFT_OUT or path.suffix in (".pyc", ".pyo"):
            continue
        mac.update(relative.as_posix().encode("utf-8") + b"\0" + path.read_bytes() + b"\0")
    signature = {
        "plugin": str(fields.get("name", plugin_id)),
        "version": str(fields.get("version", "0.0.0")),
        "digest": mac.hexdigest(),
        "algo": "HMAC-SHA256",
    }
    return json.dumps(signature, indent=2)


# name, id, secret, plugin.yaml, the fields as Python's YAML reads them, files, symlinks
CASES = [
    ("defaults", "greeter", "host secret", "execution_mode: trusted\n", {}, {"src/main.py": "print(1)\n"}, {}),
    (
        "name and version of plugin.yaml",
        "greeter",
        "host secret",
        'name: Greeter\nversion: "1.4.0"\n',
        {"name": "Greeter", "version": "1.4.0"},
        {"src/main.py": "x"},
        {},
    ),
    ("version 1.0 unquoted", "p", "s", "version: 1.0\n", {"version": 1.0}, {"src/main.py": ""}, {}),
    ("version 1.10 unquoted", "p", "s", "version: 1.10\n", {"version": 1.10}, {"src/main.py": ""}, {}),
    ("version 1.10 quoted", "p", "s", 'version: "1.10"\n', {"version": "1.10"}, {"src/main.py": ""}, {}),
    ("version 2 unquoted", "p", "s", "version: 2\n", {"version": 2}, {"src/main.py": ""}, {}),
    (
        "Markdown and JSON are signed, and the literal names *.md and *.json are not",
        "p",
        "s",
        "{}\n",
        {},
        {"src/main.py": "m", "src/x.md": "md", "src/y.json": "{}", "src/*.md": "no", "src/*.json": "no", "src/*.txt": "yes"},
        {},
    ),
    (
        "caches, compiled files and descriptions are left out",
        "p",
        "s",
        "{}\n",
        {},
        {
            "src/main.py": "m",
            "src/main.pyc": "no",
            "src/old.pyo": "no",
            "src/__pycache__/main.txt": "no",
            "src/deep/__pycache__/x/y.txt": "no",
            "src/.git/config": "no",
            "src/.mypy_cache/a": "no",
            "src/.pytest_cache/a": "no",
            "src/plugin.sig": "no",
            "src/deep/plugin.yaml": "no",
            "src/plugin.json": "no",
            "src/plugin.yaml.bak": "yes",
            "src/x.pyc.txt": "yes",
            "src/.gitignore": "yes",
        },
        {},
    ),
    ("outside the entry point's directory", "p", "s", "{}\n", {}, {"src/main.py": "m", "other/x.py": "no", "top.py": "no", "srcs/y.py": "no"}, {}),
    ("symlinks are left out", "p", "s", "{}\n", {}, {"src/main.py": "m"}, {"src/link.py": "main.py", "src/up": "../plugin.yaml"}),
    (
        "order by components and code points",
        "p",
        "s",
        "{}\n",
        {},
        {"src/main.py": "m", "src/a.txt": "2", "src/a/b": "1", "src/a-b": "0", "src/\uff21": "4", "src/\U0001f600": "5", "src/B": "6"},
        {},
    ),
    (
        "entry point at the root",
        "p",
        "s",
        "entry_point: main.py\n",
        {"entry_point": "main.py"},
        {"main.py": "m", "lib/x.py": "x", "README.md": "r", ".env.template": "A=\n"},
        {},
    ),
    ("entry point deeper down", "p", "s", "entry_point: app/bin/run.py\n", {"entry_point": "app/bin/run.py"}, {"app/bin/run.py": "m", "app/no.py": "no", "src/main.py": "no"}, {}),
    ("a directory that is not there", "p", "s", "entry_point: gone/main.py\n", {"entry_point": "gone/main.py"}, {"src/main.py": "no"}, {}),
    (
        "beyond ASCII: secret, name, path, bytes",
        "p",
        "s\u00e9cr\u00e8t \U0001f511",
        "name: \u017b\u00f3\u0142\u0107 \U0001f600\nentry_point: \u017ar\u00f3d\u0142o/main.py\n",
        {"name": "\u017b\u00f3\u0142\u0107 \U0001f600", "entry_point": "\u017ar\u00f3d\u0142o/main.py"},
        {"\u017ar\u00f3d\u0142o/main.py": "\u00e9\n", "\u017ar\u00f3d\u0142o/\u65e5\u672c.txt": "\u8a9e"},
        {},
    ),
    (
        "a name with quotes, a backslash and controls",
        "p",
        "s",
        'name: "a\\"b\\\\c\\td\\x7f/"\n',
        {"name": 'a"b\\c\td\x7f/'},
        {"src/main.py": ""},
        {},
    ),
]


def main() -> None:
    vectors = []
    for name, plugin_id, secret, description, fields, files, symlinks in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {"plugin.yaml": description, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(text.encode("utf-8"))
            for path, target in symlinks.items():
                os.symlink(target, root / path)
            signature = sign(root, plugin_id, fields, secret)
        vectors.append(
            {"name": name, "id": plugin_id, "secret": secret, "files": {"plugin.yaml": description, **files}, "symlinks": symlinks, "signature": signature}
        )
    json.dump(vectors, sys.stdout, indent=2)
    sys.stdout.write("\n")


main()
