#!lua flags=allow-oom
-- downgrade makes an exclusive lease a shared one, without a moment in between, and extends it to T. The readers at the head
-- of the queue enter beside it (rule R11).
-- KEYS and ARGV 1-7: see common.lua
-- Returns "fences <its fence> 1 <1: contended>" or "lost".
-- include: common queue
local raw = redis.call('MGET', LOCK, STATE)
local value, state = raw[1], load(raw[2])
if not holds(value, TOKEN) then return 'lost' end
local time, list = redis.call('TIME'), {}
state.fence = nextfence(state.fence, time)
local fence = state.fence
local me = {id = id, window = ttl, ttl = ttl}
if not isShared(value) then -- else it is a repeat
  value = share(me, fence)
  setOwner(value, ttl, 'overwrite')
  redis.call('DEL', READERS)
end
value = addReader(me, millis(time), value)
if state.queued then list = pop(state, time, 'join', value) end
save(state)
announce(list, state)
return string.format('fences %s 1 %d', fence, state.queued and 1 or 0)
