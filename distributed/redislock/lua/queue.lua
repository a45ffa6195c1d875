-- The queue: shared by the scripts that admit waiters.

-- LONGEST is the longest TTL of a place in ms, whatever is written there: twice redislock's longest T, see settings
-- (rule R19).
local LONGEST = 138240000000

local function waiter(member)
  local raw = redis.call('HGET', WAITERS, member)
  local a, p, m, most, t, beat = string.match(raw or '', '^(%d+) (%S+) ([xs])(%d*) (%d+) (%d+)$')
  if not a then return nil end
  t = math.min(t, LONGEST)
  return {instance = member, attempt = a, process = p, mode = m, limit = tonumber(most), ttl = t, beat = tonumber(beat),
    window = math.floor(t / 2), id = p .. ':' .. a .. ':' .. member}
end

local function writeWaiter(w)
  redis.call('HSET', WAITERS, w.instance, string.format('%s %s %s%s %d %d', w.attempt, w.process, w.mode, w.limit or '', w.ttl, w.beat))
end

-- awake notes that a script runs now while somebody is queued. If none has for as long as a waiter may miss heartbeats, the
-- server did not answer, or its clock was set: the silence of all waiters counts from now.
local function awake(state, now)
  if now - state.last > math.min(ttl / 3, 1000) + 100 or state.since > now then state.since = now end
  state.last = now
end

-- refreshPlace notes a heartbeat of this attempt's place and extends the queue. alone: nobody was queued before.
local function refreshPlace(state, now, alone)
  if not alone then awake(state, now) end
  state.last = now
  writeWaiter({instance = instance, attempt = attempt, process = process, mode = mode, limit = limit, ttl = ttl, beat = now})
  extendTTL(WAITERS, alone)
  extendTTL(QUEUE, alone)
end

local function removeWaiter(member)
  redis.call('ZREM', QUEUE, member)
  redis.call('HDEL', WAITERS, member)
end

-- publish returns the number of receivers, or nil if it was refused, which says nothing about them. It never fails the
-- script (rule R14).
local function publish(to, text)
  local n = redis.pcall('PUBLISH', string.match(STATE, '^wllock:[^:]*:') .. to, text)
  if type(n) == 'number' then return n end
  return nil
end

-- dead reports that a waiter is to be skipped (rule R4): it missed two heartbeats (T/3, and 100 ms for a busy machine)
-- and, where PUBLISH can tell, nobody listens. After 2 T of silence it is dead whatever PUBLISH says. A heartbeat later
-- than now was noted by a clock that has been set back since; its silence counts from now.
local function dead(w, state, now)
  if w.beat > now then
    w.beat = now
    writeWaiter(w)
  end
  if now - w.beat <= w.ttl / 3 + 100 then return false end
  local silence = now - math.max(w.beat, state.since)
  if not single then return silence > w.ttl / 3 + 100 end
  return publish(w.process, 'p ' .. w.attempt .. ' 0') == 0 or silence > 2 * w.ttl
end

-- A script admits no more readers, skips no more dead waiters and notifies no more holders, because nobody else is served
-- meanwhile (rule R16).
local MOST = 64
local skips, unfinished = MOST, false -- what is left of it for dead waiters, and whether it was too little

local function removeFirst(n)
  for _ = 1, n do removeWaiter(redis.call('ZRANGE', QUEUE, 0, 0)[1]) end
end

-- firstLive returns the first live waiter and removes the dead ones before it. If all look dead, it returns the head,
-- whose claim window decides. After MOST dead waiters with others behind them it removes these and returns nil: the next
-- heartbeat goes on (rule R16; see place and announce).
local function firstLive(state, now)
  local head, rank = nil, 0
  while true do
    local member = redis.call('ZRANGE', QUEUE, rank, rank)[1]
    if not member then return head end
    local w = waiter(member)
    if w and not dead(w, state, now) then
      removeFirst(rank)
      return w
    end
    if skips == 0 then
      unfinished = true
      removeFirst(rank)
      return nil
    end
    skips = skips - 1
    if w then
      head, rank = head or w, rank + 1
    else
      removeWaiter(member)
    end
  end
end

-- setOwner writes the lock's value. "overwrite": the lock is ours; otherwise it must be free, whatever type of key a
-- foreigner may have put there (rule R12).
local function setOwner(value, window, how)
  if how == 'overwrite' then return redis.call('SET', LOCK, value, 'PX', window) end
  return redis.call('SET', LOCK, value, 'NX', 'PX', window)
end

-- own and share are the values of a lock that w owns, or is the first reader of (rule R15).
local function own(w, fence) return string.format('wllock:x:%s:%d:%s', w.id, w.ttl, fence) end
local function share(w, fence) return string.format('wllock:s:%d:%s', w.ttl, fence) end

-- addReader makes w a reader (rule R11) of the lock with this value, and returns the value, which names the longest T of the
-- readers. The lock lasts as long as its last reader.
local function addReader(w, now, value)
  redis.call('ZADD', READERS, 'GT', now + w.window, w.id) -- GT: a repeat that comes late must not shorten a claim
  extendTTL(READERS)
  local longest = ownerTTL(value)
  if longest and longest < w.ttl then
    value = share(w, string.match(value, '%d+$'))
    redis.call('SET', LOCK, value, 'KEEPTTL')
  end
  redis.call('PEXPIRE', LOCK, w.window, 'GT')
  return value
end

-- removeReader removes a reader, and lets the lock expire with the last of the others (rule R11). Returns whether there are
-- others, and whether the lock expires sooner now: then the head of the queue has to look sooner.
local function removeReader(member, now)
  redis.call('ZREM', READERS, member)
  redis.call('ZREMRANGEBYSCORE', READERS, '-inf', now)
  local latest = redis.call('ZRANGE', READERS, -1, -1, 'WITHSCORES')[2]
  return latest, latest and redis.call('PEXPIREAT', LOCK, latest, 'LT') == 1
end

-- room reports that readers may be joined with this limit: fewer than that are there whose time has not passed (rule R18).
-- nil is no limit.
local function room(most, now)
  if not most then return true end
  redis.call('ZREMRANGEBYSCORE', READERS, '-inf', now)
  return redis.call('ZCARD', READERS) < most
end

-- reserve takes the fences of a new reader: one, or with a limit a block, because each of its callers gets one.
local function reserve(state, time, most)
  local fence, count = nextfence(state.fence, time), most and block or 1
  state.fence = plus(fence, count - 1)
  return fence, count
end

-- headHasLimit reports that the head of the queue may have waited for a reader to leave, and not for all of them.
local function headHasLimit()
  local member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  local w = member and waiter(member)
  return w and w.limit
end

-- pop makes the first live waiter the owner (rule R4), or the run of readers that it heads, up to MOST (rule R11), as far as
-- their limits admit them (rule R18). how:
-- "free", the key is missing; "overwrite", it is ours; "join", readers hold it with this value, and only readers may join.
-- Returns those admitted; none if a foreigner was quicker, nobody waits, or the dead were too many. The caller saves the
-- state, then announces.
local function pop(state, time, how, value)
  local now, list = millis(time), {}
  awake(state, now)
  local w = firstLive(state, now)
  if w and not (how == 'join' and w.mode == 'x') then
    w.fence, w.count = nextfence(state.fence, time), block
    if w.mode == 'x' then
      if not setOwner(own(w, w.fence), w.window, how) then return list end
      removeWaiter(w.instance)
      state.fence = plus(w.fence, block - 1)
      list[1] = w
    else
      if how ~= 'join' then
        value = share(w, w.fence)
        if not setOwner(value, w.window, how) then return list end
        redis.call('DEL', READERS)
      end
      while w and w.mode == 's' and #list < MOST and (#list == 0 or not dead(w, state, now)) and room(w.limit, now) do
        w.fence, w.count = reserve(state, time, w.limit)
        value = addReader(w, now, value)
        removeWaiter(w.instance)
        list[#list + 1] = w
        w = firstLive(state, now)
      end
    end
  end
  state.queued = redis.call('ZCARD', QUEUE) > 0
  return list
end

-- notify asks the waiter at this rank for a heartbeat after so many ms.
local function notify(rank, wait)
  local member = redis.call('ZRANGE', QUEUE, rank, rank)[1]
  local w = member and waiter(member)
  if w then publish(w.process, string.format('p %s %d', w.attempt, wait)) end
end

-- notifyHead asks the head of the queue: when the gap for foreigners has passed, or at once.
local function notifyHead(wait) notify(0, wait) end

-- announce publishes the grants, last of all: nothing may fail after it (rule R14). After MOST readers the next one may be
-- at the head; its heartbeat admits more. After MOST dead waiters a waiter that runs this goes on by itself (see place),
-- else the last in the queue is asked to: it is the youngest, and the likeliest to live.
local function announce(list, state)
  for _, w in ipairs(list) do
    publish(w.process, string.format('g %s %s %s %s %d %d %s',
      w.mode, w.attempt, w.instance, w.fence, w.count, state.queued and 1 or 0, LOCK))
  end
  if #list == MOST and state.queued then notifyHead(0) end
  if unfinished then
    local w = waiter(instance)
    if not w or w.attempt ~= attempt then notify(-1, 0) end -- a later attempt of ours does not run this
  end
end

-- notifyHolders publishes to the holders: "w", somebody waits; "u", nobody does any more; "n", somebody was refused. Of more than MOST readers it
-- notifies those that expire last, because the others renew sooner, and learn it then.
local function notifyHolders(value, kind)
  if isShared(value) then
    for _, owner in ipairs(redis.call('ZRANGE', READERS, -MOST, -1)) do
      local p, a = string.match(owner, '^([^:]+):(%d+):')
      publish(p, kind .. ' ' .. a)
    end
  else
    local p, a = string.match(value, '^wllock:x:([^:]+):(%d+):')
    if p then publish(p, kind .. ' ' .. a) end
  end
end

local function lease(fence, count, state)
  return string.format('lease %s %d %d', fence, count, state.queued and 1 or 0)
end

-- cut lets readers last for T from now at most, MOST of them; what the others' share says does no harm, because the lock
-- does not last as long. It returns when the last one expires; not earlier than in 1 ms, when the head looks again.
local wasCut = false
local function cut(longest, now)
  wasCut = true
  local latest = now + longest
  for _, member in ipairs(redis.call('ZRANGE', READERS, string.format('(%d', latest), '+inf', 'BYSCORE', 'LIMIT', 0, MOST)) do
    redis.call('ZADD', READERS, latest, member)
  end
  local last = tonumber(redis.call('ZRANGE', READERS, -1, -1, 'WITHSCORES')[2] or latest)
  return math.min(math.max(last, now + 1), latest)
end

-- rest is the lock's PTTL. No lease lasts longer than its T: if the lock does, the clock has been set back, and a dead
-- owner would keep it for as long as that. The lock gets T from now (rule R15), which is more than any owner relies on.
local function rest(value, now)
  local left, longest = redis.call('PTTL', LOCK), ownerTTL(value)
  if not longest or left <= longest then return left end
  value = redis.call('MGET', LOCK)[1] -- this script may have changed it
  longest = ownerTTL(value)
  if not longest or left <= longest then return left end
  if isShared(value) then
    redis.call('PEXPIREAT', LOCK, cut(longest, now))
  else
    redis.call('PEXPIRE', LOCK, longest)
  end
  return redis.call('PTTL', LOCK)
end

-- holder names the instance that has the lock with this value, now that those of the list were admitted, and says how many
-- readers there are beside it. "- 0": nobody has it. "*12 0": a foreigner with a string of so many bytes; "*12! 0": that never expires;
-- "* 0": with a value of another type, for which value is "*". "*f3 0": a wllock of format 3.
local function holder(value, list)
  local w = list[1]
  if w and w.mode == 'x' then return w.instance .. ' 0' end
  if w or isShared(value) then
    local last = redis.call('ZRANGE', READERS, -1, -1)[1]
    return (last and string.match(last, '([^:]+)$') or '-') .. ' ' .. math.max(redis.call('ZCARD', READERS) - 1, 0)
  end
  if value == '*' then return '* 0' end
  if formatOf(value) then return '*f' .. formatOf(value) .. ' 0' end
  if value and isForeign(value) then return '*' .. #value .. (redis.call('PTTL', LOCK) < 0 and '! 0' or ' 0') end
  return (string.match(value or '', '^wllock:x:[^:]+:%d+:([^:]+):') or '-') .. ' 0'
end

-- untilRoom is how long the head of the queue waits at most until enough readers have expired for its limit, if the lock lasts
-- that long. Shares that last longer than any lease show that the clock has been set back, as in rest.
local function untilRoom(wait, now)
  local value = redis.call('MGET', LOCK)[1] -- this script may have changed it
  if not isShared(value) then return wait end
  local last, longest = redis.call('ZRANGE', READERS, -1, -1, 'WITHSCORES')[2], ownerTTL(value)
  if last and longest and not wasCut and tonumber(last) > now + longest then cut(longest, now) end
  local over = redis.call('ZCARD', READERS) - limit
  if over < 0 then return 0 end -- it is admitted when it asks next
  return math.max(math.min(wait, redis.call('ZRANGE', READERS, over, over, 'WITHSCORES')[2] - now), 0)
end

-- place is the reply to a waiter: how many are before it, when to look again (ms until the lock expires or may be taken;
-- -1: never), whether a foreigner has it, which sends no message when it unlocks, and the holder (owner is the value, if that is
-- not ours). A waiter that has come upon too many dead ones is to go on at once, as if it were the head.
local function place(value, foreign, state, now, owner, list)
  if unfinished then return 'place 0 0 0' end
  local wait = rest(value, now)
  if wait == -2 then wait = math.max(state.free - now, 0) end
  local rank = redis.call('ZRANK', QUEUE, instance) or 0
  if limit and rank == 0 then wait = untilRoom(wait, now) end
  return string.format('place %d %d %d %s', rank, wait, (foreign or isForeign(value)) and 1 or 0,
    holder(owner, list)) -- after rest, which may change who comes last
end
