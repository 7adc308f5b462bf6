"""What hatchling does for DRMQ beside copying files.

It compiles the decoder, generates the code of the gRPC services, builds the dashboard, chooses the tag of the wheel,
and makes the text for an index.

**The decoder** of `drmq.columnar` is built into the wheel, or in place for an editable install. It is optional: without
a C compiler or Python's headers the wheel holds Python only, and everything works, reading columns more slowly.
`DRMQ_COLUMNAR=pure` leaves it out, `DRMQ_COLUMNAR=compiled` fails rather than going without. Only the limited API is
used, so one build serves Python 3.11 and every later version.

**The tag** of a wheel with the decoder says which systems can load it. An index accepts `manylinux_X_Y` only: Linux
with glibc X.Y or later. X.Y is read from the decoder itself (`objdump`); a library that needs more than glibc keeps the
tag of this machine.

**The code of the gRPC services** is generated from `proto/` into `src/drmq/v1`, with grpcio-tools. A wheel is not built
without it. An editable install without grpcio-tools works, and its gateways say that gRPC is off.

**The dashboard** is built into a wheel if it is not there yet, with Node (`dashboard/tool.py`), so that `pip install .`
in a clone has it. Without Node, or with `DRMQ_DASHBOARD=none`, gateways serve their API without pages, and say so. An
editable install leaves it to `make dashboard`.

**The text** that an index shows is the README. Its links are relative to the repository, where an index has no files:
they become links into the public repository, or plain text while there is none (`repository` in `pyproject.toml`).

`python hatch_build.py` builds the decoder and generates the code in place.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = "src/drmq/columnar/_decoder.c"
TARGET = "src/drmq/columnar/_decoder.abi3.so"
FLAGS = ["-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
LINK = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]

PROTO = "proto"
GENERATED = "src/drmq/v1"

DASHBOARD = "src/drmq/gateway/static/index.html"

OLDEST_GLIBC = (2, 17)
"""The oldest version that current indexes and tools have a name for (manylinux2014)."""


class CustomBuildHook(BuildHookInterface[Any]):
    """What hatchling calls to build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._generate(is_editable=version == "editable")
        if version != "editable" and self.target_name == "wheel":
            reason = build_dashboard(Path(self.root))
            if reason is not None:
                self.app.display_warning(f"The dashboard was not built: {reason}")
        self._compile(build_data)

    def _generate(self, is_editable: bool) -> None:
        reason = generate_services(Path(self.root))
        if reason is None:
            return
        if not is_editable and not any(Path(self.root, GENERATED).glob("*_pb2.py")):
            raise RuntimeError(f"The code of the gRPC services was not generated: {reason}")
        self.app.display_warning(f"The code of the gRPC services was not generated: {reason}")

    def _compile(self, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("DRMQ_COLUMNAR", "")
        target = Path(self.root, TARGET)
        target.unlink(missing_ok=True)
        if wanted == "pure":
            return
        reason = compile_decoder(Path(self.root))
        if reason is None:
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform_tag(target)}"
            build_data["artifacts"].append(TARGET)
        elif wanted == "compiled":
            raise RuntimeError(f"DRMQ_COLUMNAR=compiled, but the decoder was not built: {reason}")
        else:
            self.app.display_warning(f"The compiled decoder was not built, reading columns will be slower: {reason}")


class CustomMetadataHook(MetadataHookInterface):
    """What hatchling calls for the fields that `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config.get("repository", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": index_text(text, repository, metadata["version"]),
        }
        metadata["urls"] = project_urls(repository)


def project_urls(repository: str) -> dict[str, str]:
    """The addresses that an index shows; none while there is no public repository."""
    if not repository:
        return {}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Source": repository,
        "Issues": f"{repository}/issues",
    }


def index_text(text: str, repository: str, version: str) -> str:
    """A page of the repository as an index can show it: its relative links lead to this version, or are no links."""

    def replaced(link: re.Match[str]) -> str:
        shown, target = link["shown"], link["target"]
        if "://" in target:
            return link[0]
        path = f"README.md{target}" if target.startswith("#") else target
        return f"[{shown}]({repository}/blob/v{version}/{path})" if repository else shown

    return re.sub(r"\[(?P<shown>[^\]]*)\]\((?P<target>[^)\s]+)\)", replaced, text)


def platform_tag(library: Path) -> str:
    """The platform of a wheel with this library, as general as the library allows."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    system, _, machine = here.partition("_")
    needed = glibc_needed(library) if system == "linux" else None
    if needed is None:
        return here
    major, minor = max(needed, OLDEST_GLIBC)
    tag = f"manylinux_{major}_{minor}_{machine}"
    return f"{tag}.manylinux2014_{machine}" if (major, minor) == OLDEST_GLIBC else tag


def glibc_needed(library: Path) -> tuple[int, int] | None:
    """The version of glibc that a library needs; None if it needs other libraries, or that cannot be found out."""
    try:
        found = subprocess.run(["objdump", "-p", str(library)], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    libraries = set(re.findall(r"^\s+NEEDED\s+(\S+)", found, re.MULTILINE))
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", found)]
    return max(versions) if libraries <= {"libc.so.6", "libm.so.6"} and versions else None


def compile_decoder(root: Path) -> str | None:
    """Compile into `TARGET`, or say why that was not possible."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it needs CPython with a GIL"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"there is no C compiler ({compiler[0]})"
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"there is no Python.h in {include} (on Debian: apt-get install python3-dev)"
    # Under another name first: a running process may have the old file mapped.
    finished = root / TARGET
    fresh = finished.with_suffix(".new")
    flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), f"-I{include}"]
    command = [*compiler, *flags, *LINK, str(root / SOURCE), "-o", str(fresh)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"{shlex.join(command)} failed:\n{result.stderr}"
    fresh.replace(finished)
    return None


def generate_services(root: Path) -> str | None:
    """Generate the messages, their types and the stubs of all services, or say why that was not possible."""
    try:
        from grpc_tools import protoc
    except ImportError:
        return "grpcio-tools is not installed"
    proto, target = root / PROTO, root / "src"
    files = sorted(map(str, proto.rglob("*.proto")))
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"--proto_path={proto}", *outputs, *files]) != 0:
        return "protoc failed; it has said why"
    names = {Path(file).stem for file in files}
    for path in (root / GENERATED).glob("*_pb2*"):
        if path.name.partition("_pb2")[0] not in names:
            path.unlink()
    return None


def build_dashboard(root: Path) -> str | None:
    """Build the pages of the gateway if they are not there, or say why that was not possible."""
    if (root / DASHBOARD).exists():
        return None
    if os.environ.get("DRMQ_DASHBOARD") == "none":
        return "DRMQ_DASHBOARD=none"
    command = [sys.executable, str(root / "dashboard" / "tool.py"), "build"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if (root / DASHBOARD).exists() else (result.stdout + result.stderr).strip()


def main() -> int:
    """Build everything in place."""
    root = Path(__file__).resolve().parent
    failed = 0
    for what, build in (("The decoder", compile_decoder), ("The code of the gRPC services", generate_services)):
        reason = build(root)
        if reason is not None:
            sys.stderr.write(f"{what} was not built: {reason}\n")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
