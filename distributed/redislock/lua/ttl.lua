#!lua flags=allow-oom
-- ttl notes that a lease TTL is in use, and finds the longest that is.
-- KEYS  1 zset  TTL in ms -> ms since 1970 when it is forgotten
-- ARGV  1 the TTL in ms
--       2 ms for which it is remembered
-- Returns the longest TTL in ms.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], string.format('%d', now + ARGV[2]), ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end -- the longest memory decides
local longest = '0'
for _, ttl in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if tonumber(ttl) > tonumber(longest) then longest = ttl end
end
return longest
