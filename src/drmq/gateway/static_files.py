"""The dashboard's files, and its page for every path that is no file.

The bundle is built from `dashboard/` and is part of a package. A checkout without it says so.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from drmq.gateway.problems import problem, respond

DIRECTORY: Final = Path(__file__).parent / "static"
_ASSETS = "assets/"
_FOR_EVER = "public, max-age=31536000, immutable"
_MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>DRMQ</title></head><body>
<h1>DRMQ</h1>
<p>This gateway works, but the dashboard is not built. In a clone, <code>make dashboard</code> builds it.</p>
<p>The HTTP API is there: <a href="/api/v1/cluster">/api/v1/cluster</a>,
<a href="/api/v1/openapi.json">/api/v1/openapi.json</a>.</p>
</body></html>
"""


async def page(request: Request) -> Response:
    """A file of the dashboard; for any other path the page itself, which has its own routes."""
    path: str = request.path_params["path"]
    if path.startswith("api/"):
        return respond(problem(404, f"there is nothing at /{path}", advice="GET /api/v1/openapi.json lists the API."))
    try:
        found = (DIRECTORY / path).resolve()
        is_file = bool(path) and found.is_relative_to(DIRECTORY.resolve()) and found.is_file()
    except (OSError, ValueError):  # a name that is too long, or one with a NUL
        return respond(problem(404, "no file can have this name"))
    if is_file:
        headers = {"Cache-Control": _FOR_EVER if path.startswith(_ASSETS) else "no-cache"}
        return FileResponse(found, headers=headers, media_type=mimetypes.guess_type(found.name)[0])
    if path.startswith(_ASSETS):
        return respond(problem(404, f"there is no file /{path}"))
    index = DIRECTORY / "index.html"
    if not index.is_file():
        return HTMLResponse(_MISSING, headers={"X-Drmq-Dashboard": "missing"})  # for `drmq dashboard`
    return FileResponse(index, headers={"Cache-Control": "no-cache"}, media_type="text/html")
