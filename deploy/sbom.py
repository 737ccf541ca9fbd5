#!/usr/bin/env python3
"""Prints a CycloneDX 1.5 SBOM of what is linked into the program for a target: `deploy/sbom.py TARGET`."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "mixer-adapters"


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked(target):
    """The ids (name and version) of the packages that are compiled into the program, without tools of the build."""
    lines = cargo("tree", "--locked", "-p", PROGRAM, "-e", "normal,no-proc-macro", "--target", target, "--prefix", "none", "-f", "{p}")
    return {tuple(line.split()[:2]) for line in lines.splitlines() if line}


def component(package, checksums):
    name, version = package["name"], package["version"]
    found = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package["license"]:
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def main(target):
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    wanted = linked(target)
    packages = [package for package in metadata["packages"] if (package["name"], f"v{package['version']}") in wanted]
    refs = {package["id"]: f"{package['name']}@{package['version']}" for package in packages}
    program = next(package for package in packages if package["name"] == PROGRAM)
    nodes = [node for node in metadata["resolve"]["nodes"] if node["id"] in refs]
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {**component(program, checksums), "type": "application"},
            "properties": [{"name": "target", "value": target}],
        },
        "components": [
            component(package, checksums)
            for package in sorted(packages, key=lambda package: (package["name"], package["version"]))
            if package is not program
        ],
        "dependencies": [
            {
                "ref": refs[node["id"]],
                "dependsOn": sorted(
                    refs[dependency["pkg"]]
                    for dependency in node["deps"]
                    if dependency["pkg"] in refs and any(kind["kind"] is None for kind in dependency["dep_kinds"])
                ),
            }
            for node in sorted(nodes, key=lambda node: refs[node["id"]])
        ],
    }
    json.dump(sbom, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
