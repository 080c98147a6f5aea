"""ASGI middleware, for FastAPI and Starlette: whoever comes with a revoked token is turned away.

It stands BEHIND the verification of the token and does none itself: `claims_of(scope)` gives the claims
that your verification has accepted, with their signature and their times. Copy this file; it needs httpx.

What it keeps:

- Only a clean `definitely-not` passes without a look-up. Everything else (a maybe, another status, a
  time-out, a refused connection, an answer that is odd in any way) asks `is_revoked(jti)`: your own
  database, which is the authority. Where that fails too, nobody passes.
- Two tries at most, the second on a connection of its own, and both within a deadline.
- No token and no jti in a URL, a log line or an error.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import anyio
import httpx
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

# The longest answer that is read. bloomgate's own are below 1 KiB.
MAX_ANSWER_BYTES = 64 * 1024

INVALID = 'Bearer error="invalid_token"'


class DenyRevoked:
    """The middleware.

    url: where bloomgate is, such as `http://127.0.0.1:8080`.
    key: an API key of the scope `check`.
    claims_of: the claims of a token that was VERIFIED before, or None where there was no token.
    is_revoked: looks the id up in your database; give it a time limit of its own.
    filter_name: the filter that holds the revoked ids.
    try_seconds: how long one try may take, from the connection to the last byte.
    total_seconds: how long both tries may take together.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        url: str,
        key: str,
        claims_of: Callable[[Scope], Mapping[str, Any] | None],
        is_revoked: Callable[[str], Awaitable[bool]],
        filter_name: str = "revoked-jti",
        try_seconds: float = 0.25,
        total_seconds: float = 0.5,
    ) -> None:
        self.app = app
        self.claims_of = claims_of
        self.is_revoked = is_revoked
        self.bloomgate = Bloomgate(url, key, filter_name, try_seconds, total_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        denial = await self.denial(scope)
        if denial is None:
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            # Before it was accepted: the client is answered 403.
            return await WebSocketClose(code=1008)(scope, receive, send)
        await denial(scope, receive, send)

    async def denial(self, scope: Scope) -> JSONResponse | None:
        """The answer to who may not pass."""
        claims = self.claims_of(scope)
        if claims is None:
            return unauthorized("Bearer")
        jti = claims.get("jti")
        if not isinstance(jti, str) or not jti:
            # A token without an id cannot be revoked, so it is not let in.
            return unauthorized(INVALID)
        if await self.bloomgate.is_definitely_not(jti):
            return None
        try:
            revoked = await self.is_revoked(jti)
        except Exception:
            # It may name the id: log it in `is_revoked`, where you know what it holds.
            return JSONResponse({"error": "temporarily_unavailable"}, 503)
        # Only a plain False lets pass: a forgotten `return` in the hook does not.
        return None if revoked is False else unauthorized(INVALID)


def unauthorized(challenge: str) -> JSONResponse:
    return JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": challenge})


class Bloomgate:
    """Asks bloomgate."""

    def __init__(
        self, url: str, key: str, filter_name: str, try_seconds: float, total_seconds: float
    ) -> None:
        self.target = f"{url.rstrip('/')}/v1/filters/{quote(filter_name, safe='')}/check"
        self.key = key
        self.filter_name = filter_name
        self.try_seconds = try_seconds
        self.total_seconds = total_seconds
        # A kept connection may have died since it was used last; the second try takes none of those.
        self.clients = (client(kept_connections=16), client(kept_connections=0))

    async def is_definitely_not(self, jti: str) -> bool:
        """True for a clean `definitely-not`, False for all else. Raises nothing."""
        body = json.dumps({"item": jti}).encode()
        deadline = time.monotonic() + self.total_seconds
        for client in self.clients:
            left = min(self.try_seconds, deadline - time.monotonic())
            try:
                # For all of it, the body of the answer included: httpx's own time-outs start anew with
                # every chunk. What is late loses its connection, so that its answer can never be taken
                # for another's.
                with anyio.fail_after(left):
                    response, text = await self.ask(client, body)
            except Exception:
                # No connection, none in time, or it broke: once more.
                continue
            if response.status_code < 500:
                return is_clean(response, text, self.filter_name)
        return False

    async def ask(self, client: httpx.AsyncClient, body: bytes) -> tuple[httpx.Response, bytes]:
        headers = {
            "X-API-Key": self.key,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
        }
        read = bytearray()
        async with client.stream("POST", self.target, content=body, headers=headers) as response:
            # A body that was cut off raises here, and is no shorter answer.
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > MAX_ANSWER_BYTES:
                    raise ValueError("too long an answer")
        return response, bytes(read)


def client(kept_connections: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=kept_connections)
    # trust_env: no proxy, certificates or netrc from the environment.
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, limits=limits)


def is_clean(response: httpx.Response, text: bytes, filter_name: str) -> bool:
    """Whether this is the answer to what was asked, and says `definitely-not` and nothing else."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code != 200 or media_type != "application/json":
        return False
    if "content-encoding" in response.headers:
        return False
    try:
        answer = json.loads(text, object_pairs_hook=without_twins)
    except (ValueError, RecursionError):
        return False
    # `reason` stands beside a maybe only.
    return (
        isinstance(answer, dict)
        and answer.get("verdict") == "definitely-not"
        and answer.get("filter") == filter_name
        and "reason" not in answer
    )


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """json takes the last of two fields of one name; such an answer is nobody's."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields
