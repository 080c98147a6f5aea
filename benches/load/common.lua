-- What the scripts share: requests with a body, items that were never sent before, and a report of
-- one line that the comparison reads.

function header_of(key)
   if key == nil then return "" end
   return "X-API-Key: " .. key .. "\r\n"
end

-- A whole HTTP request, byte by byte: `wrk.format` would cost the load's core more than sending it.
function whole_request(method, path, key, media_type, body)
   return method .. " " .. path .. " HTTP/1.1\r\nHost: localhost\r\n" .. header_of(key) ..
      "Content-Type: " .. media_type .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

-- Items of a UUID's form: a prefix of this run and a number.
local run = string.format("%08x-%04x-4%03x-8%03x-", os.time() % 0x100000000, tonumber(tostring({}):sub(-4), 16) or 0, 0, 0)
local number = 0

function next_item()
   number = number + 1
   return run .. string.format("%012x", number)
end

function done(summary, latency, requests)
   local errors = summary.errors
   print(string.format("report requests=%d microseconds=%d p99=%d failures=%d", summary.requests,
      summary.duration, latency:percentile(99.0),
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
