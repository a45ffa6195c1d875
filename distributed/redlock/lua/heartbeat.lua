#!lua flags=allow-oom
-- heartbeat refreshes what the attempt has here, its vote or its place, and takes a place if it has none: the server may have
-- been away when it entered, or have lost its data. If the lock is free, the head of the queue gets it.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 score  the place in the queue
-- Returns a standing.
-- include: common
if holds(TOKEN) then
  extend(TOKEN, WINDOW)
else
  queued(tonumber(ARGV[7]))
  advance()
end
local reply = standing('wait')
flush()
return reply
