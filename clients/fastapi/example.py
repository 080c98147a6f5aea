"""A server that uses bloomgate.py, as the tests run it. It VERIFIES NO TOKEN: see below.

BLOOMGATE_URL, BLOOMGATE_KEY   where bloomgate is, and a key of the scope `check`
REVOKED_FILE                   the revoked ids, one a line: stands for your database
PORT                           where to listen on 127.0.0.1
TRY_MS, TOTAL_MS               other time limits than the middleware's own
"""

import base64
import json
import os
import re

import anyio
import uvicorn
from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from bloomgate import DenyRevoked

lookups = 0


async def is_revoked(jti: str) -> bool:
    """Stands for your database. Raises where the file cannot be read."""
    global lookups
    lookups += 1
    revoked = await anyio.Path(os.environ["REVOKED_FILE"]).read_text()
    return jti in revoked.split("\n")


class TakeClaimsWithoutVerifying:
    """DANGER: reads the claims of ANY token, forged ones too.

    Your verification of the signature, the issuer, the audience and the times (PyJWT, Authlib, joserfc)
    stands in this place, and puts what it has accepted into the scope. This is here for the tests alone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            header = HTTPConnection(scope).headers.get("authorization", "")
            token = re.fullmatch(r"Bearer [\w-]+\.([\w-]+)\.[\w-]+", header, re.ASCII)
            try:
                claims = json.loads(base64.urlsafe_b64decode(token[1] + "==="))
            except (TypeError, ValueError):
                claims = None  # No token, or none that can be read.
            scope["claims"] = claims if isinstance(claims, dict) else None
        await self.app(scope, receive, send)


def seconds(name: str, default: float) -> float:
    return float(os.environ[name]) / 1000 if name in os.environ else default


orders = FastAPI()


@orders.get("/orders")
async def list_orders() -> dict[str, list[str]]:
    return {"orders": []}


# What is added last stands in front.
orders.add_middleware(
    DenyRevoked,
    url=os.environ["BLOOMGATE_URL"],
    key=os.environ["BLOOMGATE_KEY"],
    claims_of=lambda scope: scope["claims"],
    is_revoked=is_revoked,
    try_seconds=seconds("TRY_MS", 0.25),
    total_seconds=seconds("TOTAL_MS", 0.5),
)
orders.add_middleware(TakeClaimsWithoutVerifying)

app = FastAPI()


@app.get("/lookups")
async def count_lookups() -> int:
    return lookups


app.mount("/", orders)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
