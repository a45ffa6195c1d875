#!lua flags=allow-oom
-- transfer passes this server's vote on from one token to another, before all that wait (rule Q13).
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 from
--       8 to
--       9 lasts  for how long it has the vote (ms). "": as long as the one before would have, and no longer than window
-- Returns "<rest of the vote, ms> " and a standing, with "held" for "wait". Its mode is d if the owner has adopted what from has had.
-- include: common
local adopted, lasts = PREFIX .. 'd:' .. LOCK, tonumber(ARGV[9])
local mode, who = owner()
if mode == 'x' and who == ARGV[7] and not broken(ARGV[8]) then
  local rest = lasts or math.max(1, math.min(redis.call('PTTL', LOCK), WINDOW))
  redis.call('SET', LOCK, ARGV[8], 'PX', rest)
  if not lasts then redis.call('SET', adopted, ARGV[7] .. ' ' .. ARGV[8], 'PX', rest) end
end
local reply = redis.call('PTTL', LOCK) .. ' ' .. standing('held')
mode, who = owner()
if mode == 'x' and redis.call('GET', adopted) == ARGV[7] .. ' ' .. who then reply = string.gsub(reply, ' x ', ' d ') end
return reply
