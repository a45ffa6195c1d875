#!lua flags=allow-oom
-- heartbeat refreshes a place, finds a grant whose message was lost, and admits the head when the key is missing, or when
-- readers hold it. It never enqueues (rule R7).
-- KEYS and ARGV 1-7: see common.lua
-- Returns "lease <first fence> <number of fences> <1: contended>", "place <rank> <ms> <1: foreign> <holder> <more readers>", or "gone".
local raw, time = redis.call('MGET', KEYS[1], KEYS[2]), redis.call('TIME')

-- include: crowd beat
if ARGV[3] == 'x' then -- the usual case: another has the lock, since who has it has no place
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local answer = beat(0, raw[1], raw[2], ARGV[1], ARGV[2], string.match(ARGV[6], '^%d+'), ARGV[5], now, string.format('%d', now))
  if answer then return answer end
end

-- include: common queue
local value, state = raw[1], load(raw[2])
local now = millis(time)

-- A grant found here starts its claim window again: since its attempt still waits, nobody has used it.
if holds(value, TOKEN) then
  if isShared(value) then
    addReader({id = id, window = window, ttl = ttl}, now, value)
    local fence, count = reserve(state, time, limit)
    save(state)
    return lease(fence, count, state)
  end
  redis.call('PEXPIRE', LOCK, window, 'GT') -- see enter
  return lease(string.match(value, '(%d+)$'), block, state)
end

local w = waiter(instance)
if not w or w.attempt ~= attempt or not redis.call('ZSCORE', QUEUE, instance) then return 'gone' end
refreshPlace(state, now)
state.queued = true
local list, foreign = {}, false
if not value and not inGap(state, now) then -- missing though somebody is queued: the head gets it (rule R3)
  list = pop(state, time, 'free')
  foreign = #list == 0
elseif isShared(value) and mode == 's' then -- a waiter before us may be dead, and nobody else would find out
  list = pop(state, time, 'join', value)
end
save(state)
local answer = place(value, foreign, state, now, foreign and '*' or value, list)
announce(list, state)
if value and #list > 0 and not state.queued then notifyHolders(value, 'u') end
for _, one in ipairs(list) do
  if one.id == id then return lease(one.fence, one.count, state) end
end
return answer
