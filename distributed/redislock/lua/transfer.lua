#!lua flags=allow-oom
-- transfer gives an exclusive lease to another attempt: that of a detached lease, or of the one who adopts it (rule R20). The
-- queue stays as it is.
-- KEYS and ARGV 1-7: see common.lua, of the attempt that gets the lease
-- KEYS  7 done of the attempt that has it
-- ARGV  8 from  the token of the attempt that has it
--       9 mark  see enter
--      10 past  of the settings, for that attempt
-- Returns "lease <first fence> <number of fences> <1: contended>", or "lost": neither of them has it.
-- include: common
local raw = redis.call('MGET', LOCK, STATE, DONE, KEYS[7])
local value, state, from = raw[1], load(raw[2]), ARGV[8]
local fence
if value and string.sub(value, 1, #TOKEN) == TOKEN then -- a repeat, which shortens nothing
  fence = string.match(value, '%d+$')
  redis.call('PEXPIRE', LOCK, window, 'GT')
elseif not value or string.sub(value, 1, #from) ~= from or raw[3] and tonumber(raw[3]) >= tonumber(attempt) then
  return 'lost' -- or it comes late, and the attempt was dropped before
else
  fence = nextfence(state.fence, redis.call('TIME'))
  state.fence = plus(fence, block - 1)
  redis.call('SET', LOCK, TOKEN .. ARGV[9] .. fence, 'PX', window)
  save(state)
  DONE, PAST = KEYS[7], ARGV[10]
  noteEnded(string.match(from, ':(%d+):[^:]+:$'), raw[4]) -- its enter, arriving late, changes nothing
end
return string.format('lease %s %d %d', fence, block, redis.call('EXISTS', QUEUE))
