-- As `one`, over many filters in turn: ARGUMENTS are their number and the key. They are f0, f1, ….
dofile("benches/load/common.lua")

local beginnings, turn = {}, 0

function init(arguments)
   for index = 1, tonumber(arguments[1]) do
      local whole = whole_request("POST", "/v1/filters/f" .. (index - 1) .. "/check", arguments[2],
         "application/json", '{"item":"' .. string.rep("x", 36) .. '"}')
      beginnings[index] = whole:sub(1, -39)
   end
end

function request()
   turn = turn % #beginnings + 1
   return beginnings[turn] .. next_item() .. '"}'
end
