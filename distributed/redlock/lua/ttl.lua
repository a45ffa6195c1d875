#!lua
-- ttl notes that a lease TTL is in use in a system.
-- KEYS  1 zset of the TTLs (ms), by when they are forgotten
-- ARGV  1 ttl   2 for how long it is remembered (ms)
-- Returns the longest.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local longest = 0
for _, ttl in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do longest = math.max(longest, tonumber(ttl)) end
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', last[2] - now))
return string.format('%.0f', longest)
