-- As `one`, with a wait of 2 ms before each request: what is measured is how long an answer takes,
-- and not how many there can be.
dofile("benches/load/one.lua")

function delay()
   return 2
end
