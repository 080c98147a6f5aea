// A server that uses bloomgate.js, as the tests run it. It VERIFIES NO TOKEN: see below.
//
// BLOOMGATE_URL, BLOOMGATE_KEY   where bloomgate is, and a key of the scope `check`
// REVOKED_FILE                   the revoked ids, one a line: stands for your database
// PORT                           where to listen on 127.0.0.1
// TRY_MS, TOTAL_MS               other time limits than the middleware's own

import { readFile } from "node:fs/promises";
import express from "express";
import { denyRevoked } from "./bloomgate.js";

const { BLOOMGATE_URL, BLOOMGATE_KEY, REVOKED_FILE, PORT, TRY_MS, TOTAL_MS } = process.env;
let lookups = 0;

// Stands for your database. It throws where the file cannot be read.
async function isRevoked(jti) {
  lookups += 1;
  const revoked = await readFile(REVOKED_FILE, "utf8");
  return revoked.split("\n").includes(jti);
}

// DANGER: reads the claims of ANY token, forged ones too. Your verification of the signature, the
// issuer, the audience and the times (express-jwt, jose, passport-jwt) stands in this place, and puts
// what it has accepted into `req.auth`. This is here for the tests alone.
function takeClaimsWithoutVerifying(req, res, next) {
  const [, payload] = /^Bearer [\w-]+\.([\w-]+)\.[\w-]+$/.exec(req.get("authorization") ?? "") ?? [];
  try {
    req.auth = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
  } catch {
    // No token, or none that can be read: no claims.
  }
  next();
}

const app = express();
app.disable("x-powered-by");
app.get("/lookups", (req, res) => res.json(lookups));
app.use(takeClaimsWithoutVerifying);
app.use(
  denyRevoked({
    url: BLOOMGATE_URL,
    key: BLOOMGATE_KEY,
    tryMs: TRY_MS && Number(TRY_MS),
    totalMs: TOTAL_MS && Number(TOTAL_MS),
    claimsOf: (req) => req.auth,
    isRevoked,
  }),
);
app.get("/orders", (req, res) => res.json({ orders: [] }));
app.listen(Number(PORT), "127.0.0.1");
