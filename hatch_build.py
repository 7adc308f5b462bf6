"""Builds the compiled decoder of `drmq.columnar` into the wheel, or in place for an editable install.

It is optional: without a C compiler or Python's headers the wheel holds Python only, and everything works,
reading columns more slowly. `DRMQ_COLUMNAR=pure` leaves it out, `DRMQ_COLUMNAR=compiled` fails rather
than going without. Only the limited API is used, so one build serves Python 3.11 and every later version.

`python hatch_build.py` builds it in place.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "src/drmq/columnar/_decoder.c"
TARGET = "src/drmq/columnar/_decoder.abi3.so"
FLAGS = ["-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
LINK = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]


class CustomBuildHook(BuildHookInterface[Any]):
    """What hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("DRMQ_COLUMNAR", "")
        target = Path(self.root, TARGET)
        target.unlink(missing_ok=True)
        if wanted == "pure":
            return
        reason = compile_decoder(Path(self.root))
        if reason is None:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"
            build_data["artifacts"].append(TARGET)
        elif wanted == "compiled":
            raise RuntimeError(f"DRMQ_COLUMNAR=compiled, but the decoder was not built: {reason}")
        else:
            self.app.display_warning(f"The compiled decoder was not built, reading columns will be slower: {reason}")


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


if __name__ == "__main__":
    sys.exit(compile_decoder(Path(__file__).parent))
