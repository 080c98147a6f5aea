-- Asks bloomgate whether the token of a request may pass, for HAProxy (see haproxy.cfg).
--
-- Leaves the status of the answer in txn.bloomgate_status, as text, and the challenge of a 401 in
-- txn.bloomgate_challenge. Both are unset where nobody answered: whoever decides by them must deny
-- everything that is not "200".

local socket = os.getenv("BLOOMGATE_SOCKET")

-- Every value of a header, in their order. HAProxy counts from 0.
local function all_values(headers, name)
    local values = {}
    local found = headers[name]
    if found then
        for index = 0, #found do
            values[#values + 1] = found[index]
        end
    end
    return values
end

core.register_action("ask-bloomgate", { "http-req" }, function(txn)
    txn:unset_var("txn.bloomgate_status")
    txn:unset_var("txn.bloomgate_challenge")
    -- Two headers Authorization go on as two: which of them the API would take is not for us to guess.
    local authorization = all_values(txn.http:req_get_headers(), "authorization")
    local headers = {}
    if #authorization > 0 then
        headers["authorization"] = authorization
    end
    local answer = core.httpclient():get({ url = "http://bloomgate/", dst = socket, headers = headers })
    if not answer or not answer.status then
        return
    end
    local challenge = answer.headers and answer.headers["www-authenticate"]
    if challenge then
        txn:set_var("txn.bloomgate_challenge", challenge[0] or challenge[1])
    end
    txn:set_var("txn.bloomgate_status", tostring(answer.status))
end)
