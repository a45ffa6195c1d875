#!lua flags=allow-oom
-- release is leave for the usual case: an exclusive lease that nobody waits for. That the attempt has ended is not noted, so its enter must have been
-- sent once only: no copy of it can come later and take the lock again (rule R1). The client repeats it as leave.
-- KEYS 1-2: see common.lua
-- ARGV 1 value  what the lock says
-- Returns "released", or "other", and nothing was done: somebody is queued, or others have the lock.
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if raw[1] ~= ARGV[1] or not raw[2] or #raw[2] > 21 then return 'other' end
redis.call('DEL', KEYS[1])
return 'released'
