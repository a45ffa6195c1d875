#!lua flags=allow-oom
-- record keeps how the latest run under a lock has ended, and the latest one that has succeeded, of the locks of a system that were recorded last.
-- KEYS 1 last   hash  full name -> JSON of the latest run
--      2 ok     hash  the same of the latest one that has succeeded
--      3 times  zset  full name -> ms since 1970 when it was recorded
-- ARGV 1 full name, 2 JSON, 3 whether the run has succeeded, 4 ms for which all is kept, 5 of how many locks, 6 fence, 19 digits
local time = redis.call('TIME')
-- A record that comes late, of a run that had lost its lock or a copy of a request, is in place of no later run's.
local function keep(key)
  local old = redis.call('HGET', key, ARGV[1])
  local fence = old and cjson.decode(old).fence or ''
  if #fence < 19 or fence <= ARGV[6] then redis.call('HSET', key, ARGV[1], ARGV[2]) end
end
keep(KEYS[1])
if ARGV[3] == '1' then keep(KEYS[2]) end
redis.call('ZADD', KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
local more = redis.call('ZCARD', KEYS[3]) - ARGV[5]
if more > 0 then
  for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, more - 1)) do
    redis.call('HDEL', KEYS[1], name)
    redis.call('HDEL', KEYS[2], name)
    redis.call('ZREM', KEYS[3], name)
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[4]) end
return 'recorded'
