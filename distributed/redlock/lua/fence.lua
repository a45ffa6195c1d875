#!lua flags=allow-oom
-- fence reserves fences, if the attempt holds the lock here, no larger ones are reserved, and the clock here has not passed them (rule Q7).
-- Fences are decimal strings of 19 digits, compared as such: Lua's numbers end at 2^53.
-- KEYS and ARGV 1-6: see common.lua; KEYS 5 fence: the last one reserved
-- ARGV  7 first  of the block; "": none is reserved, and the reply says what is known
--       8 last   of the block
--       9 keep   for how long after the clock has passed it (ms)
-- Returns "<ok, high or other> <last reserved, or 0> <time here in us> <age> <longest>", these two as in a standing.
-- include: common
local stored = redis.call('GET', KEYS[5]) or '0'
local word = 'other'
if holds(TOKEN) then
  word = 'high'
  if ARGV[7] ~= '' and above(ARGV[7], stored) then
    reserve(KEYS[5], ARGV[8], ARGV[9])
    word, stored = 'ok', ARGV[8]
  end
end
return word .. ' ' .. stored .. ' ' .. micros .. ' ' .. mark(TTL, word ~= 'other')
