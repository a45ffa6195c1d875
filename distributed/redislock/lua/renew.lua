#!lua flags=allow-oom
-- renew extends a lease to T from now; the first time this claims it. A missing lease is never made again.
-- KEYS and ARGV 1-7: see common.lua
-- Returns "held <1: wanted>" or "lost".
-- include: common
local value = redis.call('MGET', LOCK)[1]
if not holds(value, TOKEN, mode) then return 'lost' end
if mode == 's' then
  redis.call('ZADD', READERS, 'XX', millis(redis.call('TIME')) + ttl, id)
  keep(READERS)
  redis.call('PEXPIRE', LOCK, ttl, 'GT')
else
  redis.call('PEXPIRE', LOCK, ttl)
end
return 'held ' .. redis.call('EXISTS', QUEUE)
