#!lua flags=allow-oom
-- yield gives our vote to another attempt, because no majority came about and it is the older one (rule Q4), and queues us.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 score   our place in the queue
--       8 target  the token that is to have the vote, if its process listens
--       9 mode    the target's
--      10 rest    of the target's votes on other servers (ms): a holder renews ours with them, and one that has died does not
-- Returns a standing.
-- include: common
if holds(TOKEN) then
  letgo(TOKEN)
  queued(tonumber(ARGV[7]), true)
  local target, f, given = ARGV[8], facts(ARGV[8]), false
  if f then
    given = grant(target, f)
  else -- it may hold the lock by the other servers, or have ended: then its process returns the vote
    local listeners = redis.pcall('PUBSUB', 'NUMSUB', channel(target))
    if not listeners.err and tonumber(listeners[2]) > 0 and take(target, ARGV[9], math.min(math.max(1, tonumber(ARGV[10])), LONGEST)) then
      tell(target, 'vote', '0 1 ' .. mark(0))
      given = true
    end
  end
  -- Should the target share the lock, then nobody who may do so too, and is behind us, passes us.
  advance(not given and TOKEN or nil)
else
  queued(tonumber(ARGV[7]))
end
local reply = standing('wait')
flush()
return reply
