#!lua flags=allow-oom
-- fence reserves fences, if the attempt holds the lock here and no larger ones are reserved (rule Q7). Fences are decimal
-- strings of 19 digits, compared as such: Lua's numbers end at 2^53.
-- KEYS and ARGV 1-6: see common.lua; KEYS 5 fence: the last one reserved
-- ARGV  7 first  of the block; "": none is reserved, and the reply says what is known
--       8 last   of the block
--       9 keep   for how long (ms)
-- Returns "<ok, high or other> <last reserved, or 0> <time here in us>".
-- include: common
local stored = redis.call('GET', KEYS[5]) or '0'
local word = 'other'
if holds(TOKEN) then
  word = 'high'
  if ARGV[7] ~= '' and (#stored < 19 or stored < ARGV[7]) then
    redis.call('SET', KEYS[5], ARGV[8], 'PX', ARGV[9])
    word = 'ok'
  end
end
return string.format('%s %s %.0f', word, stored, time[1] * 1000000 + time[2])
