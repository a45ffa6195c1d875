-- The crowd: an exclusive lock, and others queued who want it exclusively. This runs before the many functions of the general part (queue) are
-- even defined, which takes as long as running it. It makes the same writes, and leaves to that part what is rare: a head that has died
-- or wants to read, a clock that was set back, a repeat. TestTheCrowdIsServedAsByTheGeneralPart compares the two, reply by reply and key by
-- key, so neither can change alone.

-- keptAwake is awake of the general part: from when on the silence of waiters counts. ms is now as text.
local function keptAwake(last, since, T, now, ms)
  if now - last > math.min(T / 3, 1000) + 100 or tonumber(since) > now then return ms end
  return since
end

-- refresh writes the caller's place: see refreshPlace.
local function refresh(queue, waiters, member, entry, ms, keep)
  redis.call('HSET', waiters, member, entry .. ms)
  for _, key in ipairs({waiters, queue}) do
    if redis.call('PEXPIRE', key, keep, 'GT') == 0 and redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, keep) end
  end
end

-- handOver gives the lock, which the attempt that ends has, to the head of the queue: see pop. member is the caller, which is queued behind the
-- others, with this entry but its time, or nil. Returns the reply to it; nil, and nothing is done, if the general part is to decide.
local function handOver(raw, time, ended, T, past, member, entry)
  local fence, free, last, since = string.match(raw[2], '^(%d+) 1 (%d+) (%d+) (%d+)$')
  if not fence or raw[3] and (#raw[3] ~= #ended or raw[3] >= ended) then return nil end
  local us, now = time[2], time[1] * 1000 + math.floor(time[2] / 1000)
  if #us < 6 then us = string.sub('00000' .. us, -6) end
  us = time[1] .. us
  if #us ~= 16 or us <= ARGV[7] or us <= fence then return nil end
  local head = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  local a, p, t, beat = string.match(head and redis.call('HGET', KEYS[4], head) or '', '^(%d+) (%S+) x ([1-9]%d*) (%d+)$')
  if not a or #t > 9 or now - beat > t / 3 + 100 then return nil end
  if member and (head == member or redis.call('HGET', KEYS[4], member)) then return nil end

  -- Numbers are written as text once: that costs as much as a command.
  local ms, window = string.format('%d', now), string.format('%d', t / 2)
  since = keptAwake(last, since, T, now, ms)
  redis.call('SET', KEYS[6], ended, 'PX', past)
  if member then
    if free ~= '0' and tonumber(free) > now then free = ms end
    local ticket = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    if #ticket == 16 and ticket < us then ticket = us else ticket = math.max(ticket + 1, tonumber(us)) end
    redis.call('ZADD', KEYS[3], ticket, member)
    refresh(KEYS[3], KEYS[4], member, entry, ms, ARGV[5])
  end
  redis.call('SET', KEYS[1], 'wllock:x:' .. p .. ':' .. a .. ':' .. head .. ':' .. t .. ':' .. us .. '000', 'PX', window)
  redis.call('ZREM', KEYS[3], head)
  redis.call('HDEL', KEYS[4], head)
  local queued, more = redis.call('ZCARD', KEYS[3]), ''
  if queued > 0 then
    more = ' 1 ' .. free .. ' ' .. ms .. ' ' .. since
  elseif free ~= '0' then
    more = ' 0 ' .. free
  end
  redis.call('SET', KEYS[2], us .. '999' .. more, 'PX', ARGV[5])
  redis.pcall('PUBLISH', string.match(KEYS[2], '^wllock:[^:]*:') .. p,
    'g x ' .. a .. ' ' .. head .. ' ' .. us .. '000 1000 ' .. (queued > 0 and 1 or 0) .. ' ' .. KEYS[1])
  return 'place ' .. queued - 1 .. ' ' .. window .. ' 0 ' .. head .. ' 0'
end
