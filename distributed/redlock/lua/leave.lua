#!lua flags=allow-oom
-- leave removes the vote or the place of an attempt, and passes the lock on.
-- KEYS and ARGV 1-6: see common.lua
-- Returns 1 if it held the lock here, else 0.
--
-- The usual case first: it is the exclusive owner, and nobody is queued.
if redis.pcall('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return '1'
end

-- include: common
local found = letgo(TOKEN)
advance()
flush()
return found and '1' or '0'
