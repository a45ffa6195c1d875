#!lua flags=no-writes
-- inspect tells what this server has of locks. It changes nothing.
-- KEYS  of each lock: lock, queue, facts, broken, fence
-- ARGV  1 how many readers and waiters are named at most
-- Returns a JSON list: of each lock its value ("": none; "?": of another type), the rest of it (ms; -1: never expires), the readers
-- and the waiters (each with a slash and its mode), the numbers of both, the record of the last break, the last fence reserved here,
-- and the time here (ms).
local most = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local all = {}
for i = 1, #KEYS, 5 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then value = '?' end
  local one = {value = value or '', left = redis.call('PTTL', KEYS[i]), readers = '', nreaders = 0}
  local generation = string.match(one.value, '^wllock:rs:(.+)$')
  if generation then
    local set = string.sub(KEYS[i + 1], 1, -3 - #KEYS[i]) .. 'r:' .. generation -- the queue's name is <prefix>q:<lock>
    one.nreaders = redis.call('ZCOUNT', set, '(' .. now, '+inf')
    one.readers = table.concat(redis.call('ZRANGEBYSCORE', set, '(' .. now, '+inf', 'LIMIT', 0, most), ' ')
    if one.nreaders == 0 then one.value = '' end
  end
  local waiters = redis.call('ZRANGE', KEYS[i + 1], 0, most - 1)
  for j, token in ipairs(waiters) do
    local facts = redis.call('HGET', KEYS[i + 2], token) or ''
    waiters[j] = token .. '/' .. (string.match(facts, '^%d+ %d+ (%a)') or 'x')
  end
  one.waiters = table.concat(waiters, ' ')
  one.nwaiters = redis.call('ZCARD', KEYS[i + 1])
  one.broken = redis.call('GET', KEYS[i + 3]) or ''
  one.fence = redis.call('GET', KEYS[i + 4]) or ''
  one.now = now
  all[#all + 1] = one
end
return cjson.encode(all)
