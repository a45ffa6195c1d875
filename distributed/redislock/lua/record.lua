#!lua flags=allow-oom
-- record keeps how the latest run under a lock has ended, and the latest one that has succeeded, of the locks of a system that were recorded last.
-- KEYS 1 last   hash  full name -> JSON of the latest run
--      2 ok     hash  the same of the latest one that has succeeded
--      3 times  zset  full name -> ms since 1970 when it was recorded
-- ARGV 1 full name, 2 JSON, 3 whether the run has succeeded, 4 ms for which all is kept, 5 of how many locks
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[3] == '1' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
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
