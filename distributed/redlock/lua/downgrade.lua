#!lua flags=allow-oom
-- downgrade makes our exclusive vote a shared one and admits the readers at the head of the queue.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 ttl  in ms
-- Returns "held <1: others wait> <age> <longest>" as in a standing, or "other".
-- include: common
if not holds(TOKEN) then return 'other' end
local mode = owner()
if mode == 'x' then
  redis.call('SET', LOCK, 'wllock:rs:' .. TOKEN, 'PX', ARGV[7])
  redis.call('ZADD', PREFIX .. 'r:' .. TOKEN, now + ARGV[7], TOKEN)
end
extend(TOKEN, tonumber(ARGV[7]))
advance()
local reply = 'held ' .. othersWait(INSTANCE) .. ' ' .. mark(TTL, true)
flush()
return reply
