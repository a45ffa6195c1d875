-- The queue: shared by the scripts that let waiters in.

local function waiter(member)
  local raw = redis.call('HGET', WAITERS, member)
  local a, p, m, t, beat = string.match(raw or '', '^(%d+) (%S+) ([xs]) (%d+) (%d+)$')
  if not a then return nil end
  return {instance = member, attempt = a, process = p, mode = m, ttl = tonumber(t), beat = tonumber(beat),
    window = math.floor(t / 2), id = p .. ':' .. a .. ':' .. member}
end

local function note(w)
  redis.call('HSET', WAITERS, w.instance, string.format('%s %s %s %d %d', w.attempt, w.process, w.mode, w.ttl, w.beat))
end

-- beaten notes a heartbeat of this attempt's place and keeps the queue. alone: there was none before.
local function beaten(now, alone)
  note({instance = instance, attempt = attempt, process = process, mode = mode, ttl = ttl, beat = now})
  keep(WAITERS, alone)
  keep(QUEUE, alone)
end

local function drop(member)
  redis.call('ZREM', QUEUE, member)
  redis.call('HDEL', WAITERS, member)
end

-- publish returns the number of receivers, or nil when it was refused: that says nothing about them.
local function publish(to, text)
  local n = redis.pcall('PUBLISH', 'wllock:' .. to, text)
  if type(n) == 'number' then return n end
  return nil
end

-- dead: two heartbeats were missed (T/3, and 100 ms for a busy machine) and, where PUBLISH can tell, nobody listens.
-- After 2 T without a sign it is dead whatever PUBLISH says. A heartbeat of later than now was noted by a clock that has been
-- set back since; the silence is counted from here.
local function dead(w, now)
  if w.beat > now then
    w.beat = now
    note(w)
  end
  local silence = now - w.beat
  if silence <= w.ttl / 3 + 100 then return false end
  return not single or silence > 2 * w.ttl or publish(w.process, 'p ' .. w.attempt .. ' 0') == 0
end

-- first finds who is to be let in: the first live waiter, and the dead are dropped before it. If all look dead, the
-- head; its claim window decides.
local function first(now)
  local head, rank = nil, 0
  while true do
    local member = redis.call('ZRANGE', QUEUE, rank, rank)[1]
    if not member then return head end
    local w = waiter(member)
    if not w then
      drop(member)
    elseif dead(w, now) then
      head, rank = head or w, rank + 1
    else
      for _ = 1, rank do drop(redis.call('ZRANGE', QUEUE, 0, 0)[1]) end
      return w
    end
  end
end

-- own writes the lock's value. "over": the lock is ours to overwrite; else it must be free, whatever type a foreigner
-- may have put there.
local function own(value, window, how)
  if how == 'over' then return redis.call('SET', LOCK, value, 'PX', window) end
  return redis.call('SET', LOCK, value, 'NX', 'PX', window)
end

-- admit makes w a reader. Its share of the lock lasts as long as any reader's.
local function admit(w, now)
  redis.call('ZADD', READERS, 'GT', now + w.window, w.id) -- GT: a repeat that comes late must not shorten a claim
  keep(READERS)
  redis.call('PEXPIRE', LOCK, w.window, 'GT')
end

-- pop lets in the first waiter, or the run of readers it leads. how: "free", the key is missing; "over", it is ours to
-- overwrite; "join", readers hold it and only readers may come in. Returns those let in; none if a foreigner was
-- quicker or nobody waits. The caller saves the state, then announces.
local function pop(state, time, how)
  local now, list = millis(time), {}
  local w = first(now)
  if w and not (how == 'join' and w.mode == 'x') then
    w.fence, w.count = nextfence(state.fence, time), block
    if w.mode == 'x' then
      if not own('wllock:x:' .. w.id .. ':' .. w.fence, w.window, how) then return list end
      drop(w.instance)
      state.fence = plus(w.fence, block - 1)
      list[1] = w
    else
      if how ~= 'join' then
        if not own('wllock:s:' .. w.fence, w.window, how) then return list end
        redis.call('DEL', READERS)
      end
      while w and w.mode == 's' and (#list == 0 or not dead(w, now)) do
        w.fence, w.count = nextfence(state.fence, time), 1
        state.fence = w.fence
        admit(w, now)
        drop(w.instance)
        list[#list + 1] = w
        w = first(now)
      end
    end
  end
  state.queued = redis.call('ZCARD', QUEUE) > 0
  return list
end

-- announce tells those let in, last of all: nothing may fail after it.
local function announce(list, state)
  for _, w in ipairs(list) do
    publish(w.process, string.format('g %s %s %s %s %d %d %s',
      w.mode, w.attempt, w.instance, w.fence, w.count, state.queued and 1 or 0, LOCK))
  end
end

-- soon has the head of the queue look again when the lock, which is left free for foreigners, may be taken.
local function soon(state, now)
  local member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  local w = member and waiter(member)
  if w then publish(w.process, string.format('p %s %d', w.attempt, state.free - now)) end
end

-- want tells the holders that somebody waits.
local function want(value)
  if shared(value) then
    for _, owner in ipairs(redis.call('ZRANGE', READERS, 0, -1)) do
      local p, a = string.match(owner, '^([^:]+):(%d+):')
      publish(p, 'w ' .. a)
    end
  else
    local p, a = string.match(value, '^wllock:x:([^:]+):(%d+):')
    if p then publish(p, 'w ' .. a) end
  end
end

local function lease(fence, count, state)
  return string.format('lease %s %d %d', fence, count, state.queued and 1 or 0)
end

-- place is what a waiter is told: how many are before it, when to look again (ms until the lock runs out or may be
-- taken; -1: never), and whether a foreigner has it, who will not tell.
local function place(value, strange, state, now)
  local wait = redis.call('PTTL', LOCK)
  if wait == -2 then wait = math.max(state.free - now, 0) end
  return string.format('place %d %d %d', redis.call('ZRANK', QUEUE, instance) or 0, wait, (strange or foreign(value)) and 1 or 0)
end
