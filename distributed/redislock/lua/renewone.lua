#!lua flags=allow-oom
-- renewone is renew for while the lock's slot is being moved to another node of a cluster: until all its keys have moved,
-- a script with several keys is answered TRYAGAIN if one of them is missing, and the queue usually is. Contention is not
-- looked for. A reader needs two calls: the second one, for the lock, only if the first one held (rule R14).
-- KEYS  1 lock, or readers: see common.lua
-- ARGV  1 what the lock's value begins with; among readers, the id
--       2 T in ms
--       3 keep; only among readers
-- Returns "held 0" or "lost".
local KEY, want, ttl, keep = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if keep then
  if not redis.call('ZSCORE', KEY, want) then return 'lost' end
  local time = redis.call('TIME')
  redis.call('ZADD', KEY, 'XX', string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000) + ttl), want)
  redis.call('PEXPIRE', KEY, keep, 'GT')
  return 'held 0'
end
local value = redis.call('MGET', KEY)[1]
if not value or string.sub(value, 1, #want) ~= want then return 'lost' end
if want == 'wllock:s:' then redis.call('PEXPIRE', KEY, ttl, 'GT') else redis.call('PEXPIRE', KEY, ttl) end
return 'held 0'
