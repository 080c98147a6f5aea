-- One new item a request, in JSON: ARGUMENTS are the path and the key.
dofile("benches/load/common.lua")

local before

function init(arguments)
   local whole = whole_request("POST", arguments[1], arguments[2], "application/json",
      '{"item":"' .. string.rep("x", 36) .. '"}')
   before = whole:sub(1, -39)
end

function request()
   return before .. next_item() .. '"}'
end
