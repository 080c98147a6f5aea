// Express middleware: whoever comes with a revoked token is turned away.
//
// It stands BEHIND the verification of the token and does none itself: `claimsOf(req)` gives the claims
// that your verification has accepted, with their signature and their times. Copy this file, it needs
// nothing but Node 18.
//
// What it keeps:
// - Only a clean `definitely-not` passes without a look-up. Everything else (a maybe, another status, a
//   time-out, a refused connection, an answer that is odd in any way) asks `isRevoked(jti)`: your own
//   database, which is the authority. Where that fails too, nobody passes.
// - Two tries at most, the second on a connection of its own, and both within a deadline.
// - No token and no jti in a URL, a log line or an error.

import http from "node:http";
import https from "node:https";
import { finished } from "node:stream";

/** The longest answer that is read. bloomgate's own are below 1 KiB. */
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * @param {object} options
 * @param {string} options.url where bloomgate is, such as `http://127.0.0.1:8080`
 * @param {string} options.key an API key of the scope `check`
 * @param {string} [options.filter] the filter that holds the revoked ids
 * @param {number} [options.tryMs] how long one try may take, from the connection to the last byte
 * @param {number} [options.totalMs] how long both tries may take together
 * @param {(req: import("express").Request) => {jti?: unknown} | undefined} options.claimsOf the claims
 *   of a token that was VERIFIED before, or nothing where there was no token
 * @param {(jti: string) => Promise<boolean>} options.isRevoked looks the id up in your database; give
 *   it a time limit of its own
 */
export function denyRevoked({
  url,
  key,
  filter = "revoked-jti",
  tryMs = 250,
  totalMs = 500,
  claimsOf,
  isRevoked,
}) {
  // A hook that is missing must stop the start, and not let requests through later.
  if (typeof claimsOf !== "function" || typeof isRevoked !== "function") {
    throw new TypeError("denyRevoked needs the functions claimsOf and isRevoked");
  }
  const isDefinitelyNot = bloomgateAt({ url, key, filter, tryMs, totalMs });

  return async function denyRevoked(req, res, next) {
    const claims = claimsOf(req);
    if (!claims) return challenge(res, "Bearer");
    const { jti } = claims;
    if (typeof jti !== "string" || jti === "") {
      // A token without an id cannot be revoked, so it is not let in.
      return challenge(res, 'Bearer error="invalid_token"');
    }
    if (!(await isDefinitelyNot(jti))) {
      let revoked;
      try {
        revoked = await isRevoked(jti);
      } catch {
        // The cause may name the id: log it in `isRevoked`, where you know what it holds.
        return res.status(503).json({ error: "temporarily_unavailable" });
      }
      // Only a plain `false` lets pass: a forgotten `return` in the hook does not.
      if (revoked !== false) return challenge(res, 'Bearer error="invalid_token"');
    }
    next();
  };
}

function challenge(res, value) {
  res.status(401).set("WWW-Authenticate", value).json({ error: "unauthorized" });
}

/** Gives the function that is true for a clean `definitely-not`, false for all else, and never throws. */
function bloomgateAt({ url, key, filter, tryMs, totalMs }) {
  const target = new URL(`/v1/filters/${encodeURIComponent(filter)}/check`, url);
  const secure = target.protocol === "https:";
  const { request } = secure ? https : http;
  // Agents of our own, and node:http instead of fetch: neither a proxy of the environment nor a
  // redirect is ever followed, and we say which request gets which connection.
  const { Agent } = secure ? https : http;
  const kept = new Agent({ keepAlive: true, maxSockets: 64, maxFreeSockets: 16 });
  const fresh = new Agent({ keepAlive: false, maxSockets: 64 });

  return async function isDefinitelyNot(jti) {
    const body = JSON.stringify({ item: jti });
    const deadline = performance.now() + totalMs;
    // The kept connection may have died since it was used last; the second try takes none of those.
    for (const agent of [kept, fresh]) {
      const leftMs = Math.min(tryMs, deadline - performance.now());
      if (leftMs <= 0) return false;
      try {
        const answer = await ask(agent, body, leftMs);
        if (answer.status < 500) return isClean(answer, filter);
      } catch {
        // No connection, none in time, or it broke: once more.
      }
    }
    return false;
  };

  function ask(agent, body, limitMs) {
    return new Promise((resolve, reject) => {
      const asked = request(target, {
        agent,
        method: "POST",
        headers: {
          "X-API-Key": key,
          "Content-Type": "application/json",
          "Content-Length": Buffer.byteLength(body),
          "Accept-Encoding": "identity",
        },
      });
      // One timer for all of it, the wait for a free socket included: a socket's own time-out starts
      // anew with every byte. What is late loses its connection, so that its answer can never be
      // taken for another's.
      const timer = setTimeout(() => asked.destroy(new Error("time-out")), limitMs);
      const fail = (error) => {
        clearTimeout(timer);
        asked.destroy();
        reject(error);
      };
      asked.on("error", fail);
      asked.on("response", (response) => {
        const chunks = [];
        let bytes = 0;
        response.on("data", (chunk) => {
          bytes += chunk.length;
          if (bytes > MAX_ANSWER_BYTES) response.destroy(new Error("too long an answer"));
          else chunks.push(chunk);
        });
        finished(response, (error) => {
          // A body that was cut off is an error here, and no shorter answer.
          if (error) return fail(error);
          clearTimeout(timer);
          resolve({
            status: response.statusCode,
            headers: response.headers,
            text: Buffer.concat(chunks).toString("utf8"),
          });
        });
      });
      asked.end(body);
    });
  }
}

/** Whether this is the answer to what was asked, and says `definitely-not` and nothing else. */
function isClean({ status, headers, text }, filter) {
  if (status !== 200) return false;
  const mediaType = (headers["content-type"] ?? "").split(";")[0].trim().toLowerCase();
  if (mediaType !== "application/json" || headers["content-encoding"]) return false;
  // JSON.parse takes the last of two fields of one name; such an answer is nobody's.
  if (text.split('"verdict"').length !== 2 || text.split('"filter"').length !== 2) return false;
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    return false;
  }
  // `reason` stands beside a maybe only.
  return (
    answer?.verdict === "definitely-not" && answer.filter === filter && answer.reason === undefined
  );
}
