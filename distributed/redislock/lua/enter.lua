#!lua
-- enter releases the previous lease, if it is still ours, and asks for the lock (rule R3).
-- KEYS and ARGV 1-7: see common.lua
-- ARGV  8 prev  the lease to release first: the lock's value if it is exclusive, or "wllock:s:<id>:"; "wllock:none:": none,
--         because no value begins with it
--       9 mark  "<T in ms>:", which is between the token and the fence of an exclusive lock's value
--      10       if it is there: prev may have been released without a note (see release), so that its absence is no loss
-- Returns "lease <first fence> <number of fences> <1: contended>", which is cut to the microsecond for its fences 000 to
-- 999 with nobody waiting; "place <rank> <ms> <1: foreign> <holder> <more readers>"; "held <ms> <holder> <more readers>". Each has "lost " before it if prev was not held
-- any more. Or "old", and nothing was done. Or an error, and nothing was done.
local raw = redis.call('MGET', KEYS[1], KEYS[2], KEYS[6])
if raw[3] and tonumber(raw[3]) >= tonumber(ARGV[2]) then return 'old' end
local time = redis.call('TIME')

-- The usual case: the key is free, or held by prev, and nobody is queued. It comes before the functions of the other cases
-- are even defined, which takes as long as running it: MGET, TIME, SET, SET. Its fences are those of this microsecond
-- (rule R9). That
-- prev has ended need not be noted: the lock names a later attempt of its instance.
if ARGV[3] == 'x' and (not raw[2] or #raw[2] <= 21) then
  local us = time[2]
  if #us < 6 then us = string.sub('00000' .. us, -6) end
  us = time[1] .. us
  if #us == 16 and us > ARGV[7] and (not raw[2] or us > raw[2]) then -- 16 digits against 19 and more: the longer of equals is larger
    local got
    if not raw[1] then
      if ARGV[8] == 'wllock:none:' or ARGV[10] or raw[3] and string.find(ARGV[8], ':' .. raw[3] .. ':', 1, true) then -- or prev is released already
        got = redis.call('SET', KEYS[1], ARGV[1] .. ARGV[9] .. us .. '000', 'PX', ARGV[4], 'NX') -- NX: a foreigner's key may be of another type
      end
    elseif raw[1] == ARGV[8] then
      got = redis.call('SET', KEYS[1], ARGV[1] .. ARGV[9] .. us .. '000', 'PX', ARGV[4])
    end
    if got then
      redis.call('SET', KEYS[2], us, 'PX', ARGV[5])
      return us
    end
  end
end

-- include: crowd
if ARGV[3] == 'x' and raw[1] and raw[1] == ARGV[8] and raw[2] then
  local T, past = string.match(ARGV[6], '^(%d+) %d %d+ 0 (%d+) %-$')
  local ended = string.match(ARGV[8], '^wllock:x:[^:]+:(%d+):[^:]+:%d+:%d+$')
  local p, member = string.match(ARGV[1], '^wllock:x:([^:]+):%d+:([^:]+):$')
  local answer = T and ended and handOver(raw, time, ended, T, past, member, ARGV[2] .. ' ' .. p .. ' x ' .. T .. ' ')
  if answer then return answer end
end

-- include: common queue
if formatOf(raw[1]) then
  return redis.error_reply('ERR another version of wllock has this lock, in format ' .. formatOf(raw[1])
    .. ', and this process knows format 2: all that share locks need versions of one format')
end
local prev = string.match(ARGV[8], '^wllock:x:[^:]+:%d+:[^:]+:') or ARGV[8] -- the token
local before = string.match(prev, ':(%d+):[^:]+:$')
local lost = before and raw[3] == '0' .. before and 'lost ' or '' -- noted by an earlier leave, or by this enter
local value, state, now = raw[1], load(raw[2]), millis(time)
local me = {id = id, window = window, ttl = ttl}

-- A repeat gets the first answer, and an older attempt of ours nothing (rule R1).
if holds(value, TOKEN) then
  if isShared(value) then
    addReader(me, now, value)
    local fence, count = reserve(state, time, limit)
    save(state)
    return lost .. lease(fence, count, state)
  end
  redis.call('PEXPIRE', LOCK, window, 'GT') -- a copy that comes late must not shorten what was claimed since
  return lost .. lease(string.match(value, '(%d+)$'), block, state)
end
if laterOwns(value) then return 'old' end
local again, moved, nowait = false, false, most == 0 -- nowait: no place is taken
if state.queued then
  local w = waiter(instance)
  if w and tonumber(w.attempt) > tonumber(attempt) then return 'old' end
  again = w and w.attempt == attempt
  moved = w and not again and (not nowait or w.attempt == before) -- from the place of an earlier attempt; NoWait: of prev, which a late copy may have
  if moved then removeWaiter(instance) end
  local others = redis.call('ZCARD', QUEUE)
  state.queued = others > 0
  nowait = nowait or most and not w and others >= most
end

-- Release prev. The key itself is overwritten or deleted below.
local ours, sooner, parted = false, false, false -- parted: prev was a reader beside others
if before and holds(value, prev) then
  if isShared(value) then
    local others
    others, sooner = removeReader(idof(prev), now)
    ours, parted = not others, others
  else
    ours = true
  end
  noteEnded(before, raw[3])
  if ours and gap > 0 then state.free = now + gap end
elseif before and not ARGV[10] and not again and (not raw[3] or tonumber(raw[3]) < tonumber(before)) then
  lost = 'lost '
  noteEnded('0' .. before, raw[3])
end
local free, foreign = (not value or ours) and not inGap(state, now), false

if free and not state.queued then
  local fence, count = nextfence(state.fence, time), block
  local how = ours and 'overwrite' or 'free'
  local got
  if mode == 's' then
    if not limit then count = 1 end
    got = setOwner(share(me, fence), window, how)
    if got then
      redis.call('DEL', READERS)
      addReader(me, now)
    end
  else
    got = setOwner(own(me, fence), window, how)
  end
  if got then
    state.fence = plus(fence, count - 1)
    save(state)
    return lost .. lease(fence, count, state)
  end
  free, foreign = false, true -- a foreigner's key of another type
elseif mode == 's' and isShared(value) and not ours and not state.queued and room(limit, now) then
  local fence, count = reserve(state, time, limit)
  addReader(me, now, value)
  save(state)
  if moved then notifyHolders(value, 'u') end
  return lost .. lease(fence, count, state)
end

local alone = not state.queued
if not nowait then
  if not again then
    local last = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', QUEUE, math.max(last + 1, time[1] * 1e6 + time[2]), instance)
  end
  refreshPlace(state, now, alone)
  state.queued = true
end
local list = {}
if free then
  list = pop(state, time, ours and 'overwrite' or 'free')
elseif isShared(value) and not ours and (moved or parted and state.queued and headHasLimit()) then -- readers may have been queued behind the place that is left
  list = pop(state, time, 'join', value)
end
local joined -- the readers that were admitted just now, as a repeat would
if nowait and mode == 's' and #list > 0 and list[1].mode == 's' and not state.queued and room(limit, now) then
  local fence, count = reserve(state, time, limit)
  addReader(me, now, redis.call('MGET', LOCK)[1])
  joined = lease(fence, count, state)
end
if ours and #list == 0 then redis.call('DEL', LOCK, READERS) end
-- Whoever is refused tells the holder, once for its lease (rule T12): the state says that it has been told. If somebody is queued
-- the holder knows.
local refused = nowait and value and not ours and #list == 0 and not state.queued and not isForeign(value)
save(state, refused)
foreign = foreign or free and not ours and #list == 0 and not unfinished -- of another type
local owner = foreign and not value and '*' or not ours and value
local answer = nowait and 'held ' .. math.max(rest(value, now), 0) .. ' ' .. holder(owner, list)
  or place(value, foreign or free and #list == 0, state, now, owner, list)
announce(list, state) -- all is checked and written: only PUBLISH is left (rule R14)
if (moved or #list > 0) and value and not ours and not state.queued then notifyHolders(value, 'u') end
if ours and gap > 0 and state.queued then notifyHead(state.free - now) end
if sooner and state.queued then notifyHead(0) end
for _, w in ipairs(list) do
  if w.id == id then return lost .. lease(w.fence, w.count, state) end
end
if joined then return lost .. joined end
if alone and not nowait and value and not ours then notifyHolders(value, 'w') end
if refused and not state.told then notifyHolders(value, 'n') end
return lost .. answer
