#!lua flags=allow-oom
-- leave releases this attempt's lease, or leaves its place; the lock goes to the next waiter in the same script
-- (rule R4).
-- KEYS and ARGV 1-7: see common.lua
-- ARGV  8 past, of the settings
-- Returns "released": a lease, now or by an earlier leave; "left": a place; "lost": it held nothing; "over": a later attempt
-- of its instance has been here, and may have released the lease, unless it was lost before.
local raw = redis.call('MGET', KEYS[1], KEYS[2], KEYS[6])
if raw[3] == ARGV[2] then return 'released' end -- a repeat

-- The usual case, a lease that nobody waits for: MGET, DEL, SET. See enter.
local ours = raw[1] and raw[2] and ARGV[3] == 'x' and string.sub(raw[1], 1, #ARGV[1]) == ARGV[1]
if ours and #raw[2] <= 21 and (not raw[3] or tonumber(raw[3]) < tonumber(ARGV[2])) then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[6], ARGV[2], 'PX', ARGV[8])
  return 'released'
end

-- include: crowd
if ours and handOver(raw, redis.call('TIME'), ARGV[2], string.match(ARGV[6], '^%d+'), ARGV[8]) then return 'released' end

-- include: common queue
local value, state = raw[1], load(raw[2])

if holds(value, TOKEN) then
  if isShared(value) then
    local others, sooner = removeReader(id, millis(redis.call('TIME')))
    if others then
      local list = {}
      if state.queued and headHasLimit() then
        list = pop(state, redis.call('TIME'), 'join', value)
        save(state)
      end
      noteEnded(attempt, raw[3])
      announce(list, state)
      if sooner and state.queued then notifyHead(0) end
      if #list > 0 and not state.queued then notifyHolders(value, 'u') end
      return 'released'
    end
  end
  local list, now = {}
  if gap > 0 then
    now = millis(redis.call('TIME'))
    state.free = now + gap
  elseif state.queued then
    list = pop(state, redis.call('TIME'), 'overwrite')
  end
  if #list == 0 then
    if isShared(value) then redis.call('DEL', LOCK, READERS) else redis.call('DEL', LOCK) end
  end
  save(state)
  noteEnded(attempt, raw[3])
  announce(list, state)
  if gap > 0 and state.queued then notifyHead(state.free - now) end
  return 'released'
end

local w = waiter(instance)
if w and w.attempt == attempt then
  removeWaiter(instance)
  state.queued = redis.call('ZCARD', QUEUE) > 0
  local list, time = {}, redis.call('TIME')
  local resting = not value and inGap(state, millis(time))
  if state.queued and not value and not resting then
    list = pop(state, time, 'free')
  elseif state.queued and isShared(value) then
    list = pop(state, time, 'join', value)
  end
  save(state)
  noteEnded(attempt, raw[3])
  announce(list, state)
  if state.queued and resting then notifyHead(state.free - millis(time)) end -- the new head does not know yet
  if value and not state.queued then notifyHolders(value, 'u') end
  return 'left'
end
if raw[3] == '0' .. attempt then return 'lost' end -- a repeat, or the enter that named it as prev has found this
if laterOwns(value) then
  noteEnded('00' .. attempt, raw[3]) -- or a late enter of this one would take the lock once that one has expired
  return 'over'
end
if raw[3] and (raw[3] == '00' .. attempt or tonumber(raw[3]) > tonumber(attempt)) then return 'over' end
noteEnded('0' .. attempt, raw[3]) -- so that a repeat gets this answer
return 'lost'
