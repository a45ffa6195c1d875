#!lua flags=allow-oom
-- transfer passes this server's vote on from one token to another, before all that wait (rule Q13).
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 from
--       8 to
--       9 lasts  for how long it has the vote (ms). "": no longer than the one before would have had it, nor than window
-- Returns "<rest of the vote, ms> " and a standing, with "held" for "wait". Its mode is d if the owner has it from the same token.
-- include: common
local adopted = PREFIX .. 'd:' .. LOCK -- "<from> <to>", as long as to has the vote
local mode, who = owner()
if mode == 'x' and who == ARGV[7] and not broken(ARGV[8]) then
  local rest = tonumber(ARGV[9]) or math.max(1, math.min(redis.call('PTTL', LOCK), WINDOW))
  redis.call('SET', LOCK, ARGV[8], 'PX', rest)
  redis.call('SET', adopted, who .. ' ' .. ARGV[8], 'PX', rest)
end
local reply = redis.call('PTTL', LOCK) .. ' ' .. standing('held')
mode, who = owner()
if mode == 'x' and redis.call('GET', adopted) == ARGV[7] .. ' ' .. who then reply = string.gsub(reply, ' x ', ' d ') end
return reply
