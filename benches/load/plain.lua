-- One new item a request, as it is, in a GET: what bloomsrv takes. The argument is the path.
dofile("benches/load/common.lua")

local before

function init(arguments)
   local whole = whole_request("GET", arguments[1], nil, "text/plain", string.rep("x", 36))
   before = whole:sub(1, -37)
end

function request()
   return before .. next_item()
end
