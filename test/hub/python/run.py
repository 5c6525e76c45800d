"""Runs the scenario that the argument names. Reads its facts and prints its findings, both as JSON."""

import json
import sys

import marketplace
import sealed
from project import ProjectHub, encode
from wire import Refused, get, post_json

TIMES = {"started_at": "2026-01-02T03:04:05+00:00", "completed_at": "2026-01-02T03:04:06+00:00"}


def deploy_listing(facts):
    """Uses the routes of a plugin or service: detail, artifact, reports and hosts."""
    kind, slug = facts["kind"], facts["slug"]
    hub = marketplace.Marketplace(facts["base"], facts["api_key"])
    latest = hub.latest(kind, slug)
    artifact = hub.fetch(kind, slug, latest)
    common = {"version": latest, "host_id": "python-1", **TIMES}
    failed = hub.report(kind, slug, status="failed", error_message="no space", **common)
    accepted = hub.report(kind, slug, status="success", **common)
    return {
        "latest": latest,
        "verified": marketplace.verify(artifact, facts["signing_secret"]),
        "forged": marketplace.verify(artifact, "another secret"),
        "files": sorted(marketplace.unpack(artifact)),
        "named": artifact.headers["X-Plugin"] or artifact.headers["X-Service"],
        "failed": failed["status"],
        "accepted": [accepted[name] for name in ("kind", "slug", "version", "status", "host_id")],
        "hosts": [[host["host_id"], host["status"], host["version"]] for host in hub.hosts(kind, slug)],
    }


def use_new_key(facts):
    issued = marketplace.create_key(facts["root"], facts["admin_token"], "made in Python")
    hub = marketplace.Marketplace(facts["base"], issued["key"])
    return {"fields": sorted(issued), "fetched": hub.fetch("plugin", facts["slug"]).status}


def deploy_project(facts):
    hub = ProjectHub(facts["base"], facts["project_id"])
    hub.log_in(facts["devkey"])
    manifest = hub.fetch(facts["credential"], hub.latest())
    reports = [hub.report(manifest, status="success") for _ in range(2)]
    named = hub.report(manifest, status="failed", deployment_id=reports[0]["deployment_id"], **TIMES)
    return {
        "version": manifest["version"],
        "ids": [report["deployment_id"] for report in reports],
        "named": named["deployment_id"],
    }


def publish_project(facts):
    """Seals a small project, publishes it twice, and then publishes other bytes under the same version."""
    hub = ProjectHub(facts["base"], facts["project_id"])
    version = facts["version"]
    head = f'format_version: "1"\nproject_id: {facts["project_id"]}\nversion: {version}\n'
    plan = head + "steps:\n  - {id: cart, action: install_plugin, plugin: cart}\n"
    files, manifest = sealed.with_manifest(
        {
            "plugins/cart/plugin.yaml": f"name: cart\nversion: {version}\n".encode(),
            "plugins/cart/src/main.py": b'print("made in Python")\n' * facts.get("lines", 1),
            "deployment/install.yaml": plan.encode(),
        },
        project_id=facts["project_id"],
        version=version,
    )
    made, other = (sealed.seal(files, has_content_size=facts["has_content_size"]) for _ in range(2))
    answers = [hub.publish(facts["devkey"], made, version=version, manifest=manifest) for _ in range(2)]
    return {
        "answer": answers[0],
        "again": answers[1],
        "size": len(made["artifact"]),
        "signer_public_key": encode(made["signer_public_key"]),
        "refused": refusal(lambda: hub.publish(facts["devkey"], other, version=version, manifest=manifest)),
    }


def meet_refusals(facts):
    """The status and the reason that a client reads from each refusal."""
    hub = marketplace.Marketplace(facts["base"], "wrong")
    project = ProjectHub(facts["base"]["project"], facts["project_id"])
    return {
        "no such plugin": refusal(lambda: hub.latest("plugin", "missing")),
        "a wrong key": refusal(lambda: hub.fetch("plugin", facts["slug"])),
        "no key": refusal(lambda: get(f"{facts['base']['plugin']}/plugins/{facts['slug']}/install")),
        "a malformed report": refusal(lambda: post_json(f"{facts['base']['deployments']}/deployments/report", [])),
        "a wrong dev key": refusal(lambda: project.log_in("wrong")),
        "no token": refusal(project.latest),
        "no such route": refusal(lambda: get(f"{facts['base']['project']}/v2")),
        "a wrong method": refusal(lambda: get(f"{facts['base']['project']}/v1/auth")),
        "a guessed download": refusal(lambda: get(f"{facts['base']['project']}/v1/downloads/guessed")),
    }


def refusal(attempt):
    try:
        attempt()
    except Refused as refused:
        return {"status": refused.status, "error": refused.error, "detail": refused.detail}
    return None


SCENARIOS = {f.__name__: f for f in (deploy_listing, use_new_key, deploy_project, publish_project, meet_refusals)}

print(json.dumps(SCENARIOS[sys.argv[1]](json.load(sys.stdin))))
