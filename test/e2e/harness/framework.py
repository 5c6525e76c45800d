"""Loads the plugins of a host as a host framework does, written from the rules of such a framework and not from src/.

    python3 framework.py ROOT [VERSION [SECRET]]

prints JSON: for each loaded plugin, by its name, what its entry point printed; for each skipped directory, why.
"""
import contextlib
import hashlib
import hmac
import io
import json
import os
import pathlib
import re
import runpy
import sys

import yaml

FILES = ("integration.yaml", "integration.json", "config/integration.json", "config/integration.yaml")
MODES = ("legacy", "trusted", "sandboxed", "ephemeral")
NOT_SIGNED = {"__pycache__", ".git", ".mypy_cache", ".pytest_cache", "plugin.sig", "plugin.yaml", "plugin.json", "*.md", "*.json"}


class Skip(Exception):
    pass


def configuration(root: pathlib.Path) -> dict:
    for name in FILES:
        if (root / name).exists():
            text = (root / name).read_text("utf-8")
            return (yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)) or {}
    return {}


def load_env(path: pathlib.Path, environment: dict) -> None:
    for line in path.read_text("utf-8").splitlines():
        found = re.match(r"\s*(?:export\s+)?(\w+)\s*=(.*)", line)
        if found:
            environment.setdefault(found[1], found[2].strip().strip("'\""))


def numbers(text: str) -> tuple:
    if not re.fullmatch(r"\d+(\.\d+)*", text.strip()):
        raise Skip(f"not a version: {text!r}")
    parts = [int(part) for part in text.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def fits(version: str, condition: str) -> bool:
    for part in condition.split(","):
        operator, target = re.fullmatch(r"\s*([<>]=?|==|)\s*(.*)", part).groups()
        if target.strip() == "*":
            continue
        one, other = numbers(version), numbers(target)
        if not {"": one == other, "==": one == other, ">=": one >= other, "<=": one <= other, ">": one > other, "<": one < other}[operator]:
            return False
    return True


def read_manifest(folder: pathlib.Path, version: str, environment: dict) -> dict:
    path = folder / "plugin.yaml"
    if not path.exists():
        raise Skip("no plugin.yaml")
    raw = yaml.safe_load(path.read_text("utf-8"))
    for field in ("name", "version"):
        if not raw.get(field):
            raise Skip(f"no {field}")
    if not fits(version, raw.get("framework_version", version)):
        raise Skip("framework_version")
    if raw.get("execution_mode", "legacy").lower() not in MODES:
        raise Skip("execution_mode")
    injection = raw.get("envconfiguration")
    if injection and injection.get("inject", False):
        env_file = (folder / injection.get("env_file", ".env")).resolve()
        if not env_file.is_relative_to(folder.resolve()) or not env_file.exists():
            raise Skip(f"no {env_file.name}")
        load_env(env_file, environment)
    for text in raw.get("env", {}).values():
        variable = re.fullmatch(r"\$\{(.+)\}", str(text))
        if variable and variable[1] not in environment:
            raise Skip(f"no variable {variable[1]}")
    requires = [{"name": one} if isinstance(one, str) else one for one in raw.get("requires") or []]
    return {**raw, "folder": folder, "requires": requires}


def verify(manifest: dict, secret: bytes) -> None:
    folder = manifest["folder"]
    if manifest.get("execution_mode", "").lower() not in ("trusted", "ephemeral"):
        return
    if not (folder / "plugin.sig").exists():
        raise Skip("no plugin.sig")
    mac = hmac.new(secret, (folder / "plugin.yaml").read_bytes(), hashlib.sha256)
    source = (folder / manifest.get("entry_point", "src/main.py")).parent
    for path in sorted((p for p in source.rglob("*") if p.is_file() and not p.is_symlink()), key=lambda p: p.relative_to(folder).parts):
        relative = path.relative_to(folder)
        if not set(relative.parts) & NOT_SIGNED and path.suffix not in (".pyc", ".pyo"):
            mac.update(relative.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    signature = json.loads((folder / "plugin.sig").read_text("utf-8"))
    if (signature["version"], signature["digest"]) != (str(manifest["version"]), mac.hexdigest()):
        raise Skip("plugin.sig does not match")


def run(manifest: dict, environment: dict) -> str:
    output = io.StringIO()
    os.environ.update(environment)
    with contextlib.redirect_stdout(output):
        runpy.run_path(str(manifest["folder"] / manifest.get("entry_point", "src/main.py")))
    return output.getvalue().strip()


def main(root: str, version: str = "2.0", secret: str = "") -> None:
    sys.dont_write_bytecode = True
    os.chdir(root)
    plugins = pathlib.Path((configuration(pathlib.Path(".")).get("plugins") or {}).get("directory", "./plugins"))
    manifests, loaded, skipped, environment = [], {}, {}, {}
    # The operator's unit gives the host these files.
    for path in [pathlib.Path(".env"), *sorted(plugins.glob("*.env"))]:
        if path.is_file():
            load_env(path, environment)
    for folder in sorted(plugins.iterdir()) if plugins.exists() else []:
        if not folder.is_dir() or folder.name.startswith("_"):
            continue
        try:
            manifests.append(read_manifest(folder, version, environment))
        except Skip as reason:
            skipped[folder.name] = str(reason)
    versions: dict = {}
    while manifests:
        ready = [m for m in manifests if all(r["name"] in versions and fits(versions[r["name"]], r.get("version", "*")) for r in m["requires"])]
        if not ready:
            skipped.update({m["folder"].name: "requires" for m in manifests})
            break
        for manifest in ready:
            manifests.remove(manifest)
            try:
                verify(manifest, secret.encode())
                loaded[manifest["name"]] = run(manifest, environment)
                versions[manifest["name"]] = str(manifest["version"])
            except Skip as reason:
                skipped[manifest["folder"].name] = str(reason)
    print(json.dumps({"loaded": loaded, "skipped": skipped}))


main(*sys.argv[1:])
