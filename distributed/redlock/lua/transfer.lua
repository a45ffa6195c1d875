#!lua flags=allow-oom
-- transfer passes this server's vote on from one token to another, before all that wait (rule Q13).
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 from
--       8 to
--       9 lasts  for how long it has the vote (ms). "": for no longer than the one before would have had it, nor than window; or given back, as before
-- Returns "<rest of the vote, ms> " and a standing, with "held" for "wait". Its mode is d if the owner has it from the same token.
-- include: common
local adopted = PREFIX .. 'd:' .. LOCK -- "<from> <to>", as long as from would have had the vote
local mode, who = owner()
if mode == 'x' and who == ARGV[7] and not broken(ARGV[8]) then
  local rest = math.max(1, redis.call('PTTL', LOCK))
  if ARGV[9] ~= '' then
    rest = ARGV[9]
  elseif redis.call('GET', adopted) == ARGV[8] .. ' ' .. who then
    rest = math.max(1, redis.call('PTTL', adopted))
  else
    redis.call('SET', adopted, who .. ' ' .. ARGV[8], 'PX', rest)
    rest = math.min(rest, WINDOW)
  end
  redis.call('SET', LOCK, ARGV[8], 'PX', rest)
end
local reply = redis.call('PTTL', LOCK) .. ' ' .. standing('held')
mode, who = owner()
if mode == 'x' and redis.call('GET', adopted) == ARGV[7] .. ' ' .. who then reply = string.gsub(reply, ' x ', ' d ') end
return reply
