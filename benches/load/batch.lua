-- A thousand items a request, of 128 bodies in turn: one body alone would stay in the cache.
-- ARGUMENTS are the path and the key.
dofile("benches/load/common.lua")

local bodies, turn = {}, 0

function init(arguments)
   for index = 1, 128 do
      local items = {}
      for item = 1, 1000 do
         items[item] = '"' .. next_item() .. '"'
      end
      local body = '{"items":[' .. table.concat(items, ",") .. "]}"
      bodies[index] = whole_request("POST", arguments[1], arguments[2], "application/json", body)
   end
end

function request()
   turn = turn % #bodies + 1
   return bodies[turn]
end
