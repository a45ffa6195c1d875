#!lua flags=allow-oom
-- heartbeat keeps a place, finds a grant whose notice was lost, and lets the head in when the key is missing, or readers hold
-- it. It never enqueues.
-- KEYS and ARGV 1-7: see common.lua
-- Returns "lease <first fence> <number of fences> <1: wanted>", "place <rank> <ms> <1: foreign>", or "gone".
-- include: common queue
local raw = redis.call('MGET', LOCK, STATE)
local value, state = raw[1], load(raw[2])
local time = redis.call('TIME')
local now = millis(time)

-- A grant found here begins its claim window anew: that it still waits shows that nobody has used it.
if holds(value, TOKEN, mode) then
  if mode == 's' then
    admit({id = id, window = window}, now)
    state.fence = nextfence(state.fence, time)
    save(state)
    return lease(state.fence, 1, state)
  end
  redis.call('PEXPIRE', LOCK, window, 'GT') -- see enter
  return lease(string.match(value, '(%d+)$'), block, state)
end

local w = waiter(instance)
if not w or w.attempt ~= attempt or not redis.call('ZSCORE', QUEUE, instance) then return 'gone' end
beaten(now)
state.queued = true
local list, strange = {}, false
if not value and not resting(state, now) then
  list = pop(state, time, 'free')
  strange = #list == 0
elseif shared(value) and mode == 's' then -- who is before us may be dead, and nobody else would find out
  list = pop(state, time, 'join')
end
save(state)
announce(list, state)
for _, in_ in ipairs(list) do
  if in_.id == id then return lease(in_.fence, in_.count, state) end
end
return place(value, strange, state, now)
