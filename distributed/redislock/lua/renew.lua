#!lua flags=allow-oom
-- renew extends a lease to T from now; the first time this claims it (rule R5). A missing lease is never re-created
-- (rules K1 and R8).
-- KEYS and ARGV 1-7: see common.lua
-- Returns "held <1: contended>" or "lost".
-- include: common
local value = redis.call('MGET', LOCK)[1]
if not holds(value, TOKEN) then return 'lost' end
if isShared(value) then
  redis.call('ZADD', READERS, 'XX', millis(redis.call('TIME')) + ttl, id)
  extendTTL(READERS)
  redis.call('PEXPIRE', LOCK, ttl, 'GT')
else
  redis.call('PEXPIRE', LOCK, ttl)
end
return 'held ' .. redis.call('EXISTS', QUEUE)
