"""Renders the chart with the values of trials/, and validates all objects strictly: those of Kubernetes, and those that
operators define. A bad value must end in one line that names the field. The rendered configuration goes to the folder
of the first argument, where a test in Go reads it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

HERE = Path(__file__).parent
CHART = HERE / "lightpath"

# Kinds that operators define: the module with the definition, and its file.
PROMETHEUS = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com_"
KINDS = {
    "Certificate": ("github.com/cert-manager/cert-manager@v1.21.2", "deploy/crds/cert-manager.io_certificates.yaml"),
    "JobSet": ("sigs.k8s.io/jobset@v0.8.0", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "PodMonitor": (PROMETHEUS, MONITORING + "podmonitors.yaml"),
    "PrometheusRule": (PROMETHEUS, MONITORING + "prometheusrules.yaml"),
}

# Values beside those of trials/kernel.yaml that the chart must refuse, and the words of the error.
BAD = {
    "controller.replicas=two": "controller.replicas",
    "etcd.replicas=2": "etcd.replicas",
    "agent.mtu=9": "agent.mtu",
    "tls.issuer.kind=Authority": "tls.issuer.kind",
    "fabric.hosts=null": "hosts",
    "fabric.controller.endpoints[0]=a:1": "fabric",
    "colour=red": "colour",
}


def run(*command, **env):
    return subprocess.run(command, env={**os.environ, **env}, check=False, capture_output=True, text=True)


def closed(schema):
    """The schema, with unknown fields as errors, as the API server has them with strict decoding."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {k: closed(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if isinstance(schema.get("pattern"), str) and "(?" in schema["pattern"]:
        del schema["pattern"]  # Go's flags are no Python
    return schema


def definitions():
    schemas = {}
    for kind, (module, path) in KINDS.items():
        download = run("go", "mod", "download", "-json", module)
        if download.returncode:
            print(f"SKIP  objects of kind {kind}: {(download.stdout + download.stderr).splitlines()}")
            continue
        spec = yaml.safe_load((Path(json.loads(download.stdout)["Dir"]) / path).read_text())["spec"]
        (version,) = spec["versions"]
        schema = closed(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        schema["properties"]["apiVersion"] = {"const": f"{spec['group']}/{version['name']}"}
        schemas[kind] = schema
    return schemas


def validate(name, text, schemas):
    objects = [o for o in yaml.safe_load_all(text) if o]
    for o in objects:
        what = f"{name}: {o['kind']} {o['metadata']['name']}"
        try:
            if o["kind"] in KINDS:
                jsonschema.validate(o, schemas.get(o["kind"], {}))
            else:
                kubernetes_validate.validate(o, "1.37", strict=True)
        except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as e:
            sys.exit(f"FAIL  {what}: {'.'.join(map(str, e.path))}: {e.message}")
    print(f"ok    {name}: {len(objects)} objects")
    return objects


def ports(folder):
    """The script `port` gives each node its ports, and refuses other nodes and further ranks."""
    hosts = yaml.safe_load((folder / "fabric.yaml").read_text())["hosts"]
    first = 0
    for host in hosts:
        for local in range(host["ranks"] + 1):
            rank = run(
                "sh",
                folder / "port",
                "printenv",
                "LIGHTPATH_FABRIC_RANK",
                NODE_NAME=host["name"],
                LOCAL_RANK=str(local),
            )
            want = (2, "") if local == host["ranks"] else (0, f"{first + local}\n")
            assert (rank.returncode, rank.stdout) == want, (host, local, rank)
        first += host["ranks"]
    stranger = run("sh", folder / "port", "true", NODE_NAME="stranger")
    assert stranger.returncode == 2 and "stranger" in stranger.stderr, stranger


def template(values, *more):
    """The chart's objects as text, and what helm says."""
    chart = ["helm", "template", "lightpath", CHART, "--namespace", "fabric", "--values", HERE / "trials" / values]
    return run(*chart, *more)


def restarts(*change):
    """Whether controllers restart after a change of values: the annotations of their pods differ."""
    annotations = [re.findall("checksum/.*", template("kernel.yaml", *more).stdout) for more in ((), change)]
    return annotations[0] != annotations[1]


def main():
    out = Path(sys.argv[1])
    schemas = definitions()
    for values in sorted((HERE / "trials").glob("*.yaml")):
        lint = run("helm", "lint", "--strict", "--values", values, CHART)
        if lint.returncode:
            sys.exit(f"FAIL  {values.stem}: {lint.stdout}")
        rendered = template(values.name)
        if rendered.returncode:
            sys.exit(f"FAIL  {values.stem}: {rendered.stderr}")
        folder = out / values.stem
        folder.mkdir(parents=True, exist_ok=True)
        for o in validate(values.stem, rendered.stdout, schemas):
            if o["kind"] == "ConfigMap":
                for name, text in o["data"].items():
                    (folder / name).write_text(text)
        ports(folder)
    for value, words in BAD.items():
        bad = template("kernel.yaml", "--set", value)
        lines = [s for s in bad.stderr.splitlines() if words in s]
        if bad.returncode == 0 or len(lines) != 1:
            sys.exit(f"FAIL  --set {value}: status {bad.returncode}, want one line with {words}:\n{bad.stderr}")
    print(f"ok    {len(BAD)} bad values are refused")
    assert restarts("--set", "etcd.replicas=5") and restarts("--set", "controller.config.name=a")
    assert not restarts("--set", "controller.replicas=3")
    print("ok    controllers restart if their file changes")
    jobset = HERE / "../../examples/kubernetes/jobset.yaml"
    job = validate("jobset.yaml", jobset.read_text(), schemas)[0]
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **pod}, "1.37", strict=True)


main()
