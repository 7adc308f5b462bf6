"""Starts a Spark session on this machine, with a usable Java, the right Python, and the data source.

Workers run the Python that PYSPARK_PYTHON names, or else `python3` from PATH. In a virtual environment that is not
activated, that is another Python without DRMQ. Both variables are therefore set to the running interpreter, unless the
user has set them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from drmq.spark.errors import SetupError
from drmq.spark.interpreter import spark_python
from drmq.spark.java import choose, java_home

EXTRA_ADVICE = "`pip install 'drmq[spark]'` installs it."


def check_installed() -> None:
    """Raise `SetupError` unless the packages of the extra are installed. Imports none of them."""
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise SetupError(f"The package {name} is not installed, but Spark needs it. {EXTRA_ADVICE}")


def all_brokers(bootstrap: str, timeout_s: float = 5.0) -> str:
    """The bootstrap servers and all other brokers of their cluster; only the servers if none of them answers.

    Every Python worker of a query connects to a bootstrap server again. If only one is named and it fails, the workers
    would not find the other brokers.
    """
    from drmq.client import Admin, ClientError

    try:
        with Admin(bootstrap, timeout_s=timeout_s) as admin:
            found = [str(address) for address in admin.describe_cluster().brokers.values()]
    except ClientError:
        return bootstrap
    named = [server.strip() for server in bootstrap.split(",")]
    return ",".join([*named, *(server for server in found if server not in named)])


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that Spark needs and that are missing or wrong. Raises `SetupError`."""
    given = os.environ if given is None else given
    check_installed()
    found = {"JAVA_HOME": str(java_home(choose(given)))}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if not given.get(name):
            found[name] = spark_python()
    if not given.get("SPARK_LOCAL_IP") and not given.get("SPARK_MASTER"):
        # Otherwise a machine whose own name does not resolve could not start a local session.
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    return found


def spark_session(app: str = "drmq", *, master: str | None = None, settings: Mapping[str, str] | None = None) -> Any:
    """The current `SparkSession`, or a new one. `master` is local with all cores unless given or set elsewhere."""
    os.environ.update(environment())
    # Printed at every start if a newer pandas is installed, although nothing here uses pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    elif "MASTER" not in os.environ and "SPARK_REMOTE" not in os.environ:
        builder = builder.master("local[*]")
    for name, value in {"spark.sql.session.timeZone": "UTC", **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
