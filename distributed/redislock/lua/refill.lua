#!lua flags=allow-oom
-- refill reserves more fences for an exclusive lease (rule R9).
-- KEYS and ARGV 1-7: see common.lua
-- Returns "fences <first> <number> <1: contended>" or "lost".
-- include: common
local raw = redis.call('MGET', LOCK, STATE)
local value, state = raw[1], load(raw[2])
if not holds(value, TOKEN) then return 'lost' end
local fence = nextfence(state.fence, redis.call('TIME'))
state.fence = plus(fence, block - 1)
save(state)
return string.format('fences %s %d %d', fence, block, redis.call('EXISTS', QUEUE))
