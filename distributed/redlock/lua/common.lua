-- Shared by the scripts of one lock. A script runs as a whole on one server; nothing here knows of the others.
-- KEYS  1 lock   the key of the lock: the token of its owner, "wllock:rs:<token>" for readers, or the value of a foreigner
--       2 mark   of the lock's system (rule Q11), "<born> <longest> <before> <since> <run>": since when this server has kept its data (ms since
--                1970; 0: vouched for by an operator), the longest lease TTL (ms) named since a time, and in the period before that, and the
--                run_id of its process
--       3 queue  zset of the tokens of waiters, by arrival
--       4 facts  hash from the token of a waiter to "<seen> <window> <mode> <epoch> <instance>"
-- ARGV  1 token    of the attempt that asks: "wllock:<id>:<process>"
--       2 instance that asks
--       3 mode     x: exclusive, s: shared
--       4 window   how long a vote lasts (ms)
--       5 ttl      of the attempt's lease (ms)
--       6 epoch    the number of this question; a vote that follows it is announced with it
local LOCK, MARK, QUEUE, FACTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TOKEN, INSTANCE, MODE, WINDOW, TTL, EPOCH = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local PREFIX = string.sub(MARK, 1, -5) -- of the helper keys and channels of the lock's system: MARK without its "node"
-- LONGEST is the longest TTL of a lease (ms), whatever is written in the keys: maxTTL. No vote and no mark goes beyond it (rule Q11).
local LONGEST = 69120000000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local micros = string.format('%.0f', time[1] * 1000000 + time[2])
local news = {}

-- tell has a message published to the process of a token, once all is written (rule Q9).
local function tell(token, what, arg) news[#news + 1] = {token, what, arg} end

local function channel(token) return PREFIX .. (string.match(token, '^wllock:%d+:(%w+)$') or '-') end

local function flush()
  for _, n in ipairs(news) do
    if not (n[1] == TOKEN and n[2] == 'vote') then -- the reply says so
      redis.pcall('PUBLISH', channel(n[1]), n[2] .. ' ' .. n[1] .. ' ' .. n[3] .. ' ' .. LOCK)
    end
  end
end

-- owner returns the mode (nil: free; f: a foreigner's), the token that stands for the owner, and the set of readers.
local function owner()
  local value = redis.pcall('GET', LOCK)
  if type(value) == 'table' then return 'f', '-' end -- of another type
  if not value then return nil end
  local generation = string.match(value, '^wllock:rs:(.+)$')
  if generation then
    local set = PREFIX .. 'r:' .. generation
    redis.call('ZREMRANGEBYSCORE', set, '-inf', now)
    if redis.call('ZCARD', set) == 0 then
      redis.call('DEL', LOCK)
      return nil
    end
    return 's', generation, set
  end
  if string.match(value, '^wllock:%d+:%w+$') then return 'x', value end
  return 'f', '-'
end

-- formatOf is the number of another format that the lock's value is of, or nil.
local function formatOf()
  local value = redis.pcall('GET', LOCK)
  return type(value) == 'string' and string.match(value, '^wllock(%d+):')
end

local function holds(token)
  local mode, who, set = owner()
  if mode == 's' then return redis.call('ZSCORE', set, token) and true or false end
  return mode == 'x' and who == token
end

-- lasting makes the lock last as long as its last reader.
local function lasting(set)
  local last = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')
  local left = math.max(1, tonumber(last[2]) - now)
  redis.call('PEXPIRE', LOCK, left)
  redis.call('PEXPIRE', set, left)
end

-- mark returns for how long (ms) this server has had its data, and the longest TTL in use (rule Q5): of this period, which is as long as
-- that TTL, and of the one before. So a TTL is remembered until a lease that was renewed with it is over, and forgotten after twice itself
-- at most. It notes a TTL if the server is old enough for that, or sure: if such a lease exists. Else the server's vote does not count for
-- it, and others need not wait for what nobody can have. A server without a mark was restarted empty, or flushed: it is born now.
local function mark(ttl, sure)
  local born, longest, before, since, run = string.match(redis.call('GET', MARK) or '', '^(%d+) (%d+) (%d+) (%d+) (%w+)$')
  born, longest, before, since = tonumber(born), tonumber(longest) or 0, tonumber(before) or 0, tonumber(since) or now
  ttl = math.min(ttl, LONGEST)
  local changed = not born or born > now or since > now
  if not born or born > now then -- the clock was set back
    born, run = now, string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  end
  local most, passed = math.max(longest, before), now - math.min(since, now)
  if passed > most then
    longest, before, since, changed = 0, passed > 2 * most and 0 or longest, now, changed or most > 0
  end
  if ttl > longest and (sure or now - born >= ttl) then longest, changed = ttl, true end
  if changed then redis.call('SET', MARK, string.format('%.0f %.0f %.0f %.0f %s', born, longest, before, math.min(since, now), run)) end
  return string.format('%.0f %.0f', now - born, math.max(longest, before))
end

local record
-- broken reports a token whose lease a Break has ended. It gets no vote here by any way, also where it has had none (rule Q10).
local function broken(token)
  record = record or redis.call('GET', PREFIX .. 'b:' .. LOCK) or ''
  return string.find(record, ' ' .. token .. ' ', 1, true) ~= nil
end

-- take gives the vote of this server to a token, if the lock admits it. Every vote is given here, or by the first lines of enter.lua.
local function take(token, mode, window)
  if broken(token) then return false end
  if mode == 'x' then
    return redis.call('SET', LOCK, token, 'PX', window, 'NX') and true or false
  end
  local current, _, set = owner()
  if not current then
    if not redis.call('SET', LOCK, 'wllock:rs:' .. token, 'PX', window, 'NX') then return false end
    set = PREFIX .. 'r:' .. token
  elseif current ~= 's' then
    return false
  end
  redis.call('ZADD', set, 'GT', now + window, token) -- GT: a vote that is yielded to one that has it must not shorten it
  lasting(set)
  return true
end

-- extend makes the vote of a token last for d at least.
local function extend(token, d)
  local mode, _, set = owner()
  if mode == 's' then
    redis.call('ZADD', set, 'GT', now + d, token)
    lasting(set)
  else
    redis.call('PEXPIRE', LOCK, d, 'GT') -- a copy that comes late must not shorten it
  end
end

-- above reports a fence that may follow the last one reserved here: it is larger, and than the clock, too, which has passed the last one if that is
-- forgotten. reserve keeps a fence until the clock has passed it, and then for so long (ms) as the clock may be set back (rule Q7).
local function above(fence, stored)
  return (#stored < 19 or stored < fence) and micros .. '000' < fence
end

local function reserve(key, fence, keep)
  redis.call('SET', key, fence, 'PX', string.format('%.0f', keep + math.max(0, tonumber(fence) / 1000000 - now)))
end

local function facts(token)
  local text = redis.call('HGET', FACTS, token)
  if not text then return nil end
  local seen, window, mode, epoch, instance = string.match(text, '^(%d+) (%d+) (%a) (%d+) (%S*)$')
  if not seen then return nil end
  return {seen = tonumber(seen), window = math.min(tonumber(window), LONGEST), mode = mode, epoch = epoch, instance = instance}
end

local function forget(token)
  redis.call('HDEL', FACTS, token)
  return redis.call('ZREM', QUEUE, token) == 1
end

-- othersWait reports 1 if an instance other than this one is queued. A few at the head say enough.
local function othersWait(instance)
  for _, token in ipairs(redis.call('ZRANGE', QUEUE, 0, 7)) do
    local f = facts(token)
    if f and f.instance ~= instance then return 1 end
  end
  return 0
end

-- dead reports that a waiter has missed its heartbeats and that nobody listens to its channel. It may be this server that
-- was stopped: so missed heartbeats alone say nothing.
local function dead(token, f)
  if not f then return true end
  if f.seen + f.window >= now then return false end
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', channel(token))
  return listeners.err == nil and tonumber(listeners[2]) == 0
end

local function grant(token, f)
  if not take(token, f.mode, f.window) then return false end
  forget(token)
  tell(token, 'vote', f.epoch .. ' ' .. othersWait(f.instance) .. ' ' .. mark(2 * f.window))
  return true
end

-- advance gives a free lock to the head of the queue: one writer, or the run of readers there. It passes over the dead, and
-- over one token (rule Q2). 64 bounds the time of a script; heartbeats admit the readers behind them.
local function advance(except)
  local at = 0
  for _ = 1, 64 do
    local mode = owner()
    if mode == 'x' or mode == 'f' then return end
    local head = redis.call('ZRANGE', QUEUE, at, at)[1]
    if not head then return end
    local f = facts(head)
    if head == except then
      at = at + 1
    elseif dead(head, f) then
      forget(head)
    elseif mode == 's' and f.mode == 'x' or not grant(head, f) then
      return
    end
  end
end

-- holders has a message sent to all that hold the lock.
local function holders(what, arg)
  local mode, who, set = owner()
  if mode == 'x' then
    tell(who, what, arg)
  elseif mode == 's' then
    for _, token in ipairs(redis.call('ZRANGE', set, 0, 63)) do tell(token, what, arg) end
  end
end

-- letgo removes all that this server has of a token. It reports whether that held the lock.
local function letgo(token)
  if forget(token) and redis.call('ZCARD', QUEUE) == 0 then holders('idle', '-') end
  local mode, who, set = owner()
  if mode == 's' and redis.call('ZREM', set, token) == 1 then
    if redis.call('ZCARD', set) == 0 then redis.call('DEL', LOCK) else lasting(set) end
    return true
  elseif mode == 'x' and who == token then
    redis.call('DEL', LOCK)
    return true
  end
  return false
end

-- queued notes that the attempt waits. Its score is behind all that wait already, so the order does not depend on clocks; or
-- before all of them, if it has had the vote and so was the first.
local function queued(score, first)
  if broken(TOKEN) then return end
  local known = redis.call('ZSCORE', QUEUE, TOKEN)
  if not known then
    local edge = redis.call(first and 'ZRANGE' or 'ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
    if edge[2] then
      score = first and math.min(score, tonumber(edge[2]) - 1) or math.max(score, tonumber(edge[2]) + 1)
    end
    redis.call('ZADD', QUEUE, string.format('%.0f', score), TOKEN)
    holders('want', INSTANCE)
  end
  redis.call('HSET', FACTS, TOKEN, now .. ' ' .. WINDOW .. ' ' .. MODE .. ' ' .. EPOCH .. ' ' .. INSTANCE)
  local keep = 4 * WINDOW
  if redis.call('PTTL', QUEUE) < keep then redis.call('PEXPIRE', QUEUE, keep) end
  if redis.call('PTTL', FACTS) < keep then redis.call('PEXPIRE', FACTS, keep) end
end

-- standing is the reply about the attempt: "vote <age> <longest> <contended>" or "wait <age> <longest> <rank> <rest of the
-- owner, ms; -1: free> <mode of the owner or -> <token of the owner or ->"; the mode is b if a Break has ended the lease of this token.
local function standing(word)
  local head = ' ' .. mark(TTL) .. ' '
  if holds(TOKEN) then return 'vote' .. head .. othersWait(INSTANCE) end
  local mode, who = owner()
  local rest = mode and redis.call('PTTL', LOCK) or -1
  if broken(TOKEN) then mode, who, rest = 'b', '-', -1 end
  local rank = redis.call('ZRANK', QUEUE, TOKEN) or 0
  return word .. head .. string.format('%d %d %s %s', rank, rest, mode or '-', who or '-')
end
