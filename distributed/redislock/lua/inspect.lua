#!lua flags=no-writes
-- inspect tells who has locks and who waits for them. It writes nothing. In a list no value is read beyond what a lock of ours can
-- be, because a foreigner's may be large; one lock's takes no command that the other scripts do not use, and so no further ACL rule.
-- KEYS  for each lock 5: lock, state, queue, waiters, readers, see common.lua, and broken
--         6 broken   string   "<s> <us of the second> <fence> <JSON>": when the lock was last ended by force, the fence that was
--                             skipped, and the rest of distributed.Breaking
-- ARGV  1 how many holders to name, 2 how many waiters; 0: it is a list
-- Returns a JSON array with an object for each lock: value, if it is one of ours; ttl, its PTTL; state, if there is one; readers
-- and queue, arrays of members and scores in turn; waiters, what is known of each in the queue; nreaders and nqueue, how many
-- there are in all; broken, time. What is empty is left out.
local holders, waiters = tonumber(ARGV[1]), tonumber(ARGV[2])
local time, all = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS, 6 do
  local one = {ttl = redis.call('PTTL', KEYS[i]), time = time[1] .. ' ' .. time[2]}
  local value
  if waiters > 0 then
    value = redis.call('MGET', KEYS[i])[1]
  elseif one.ttl ~= -2 then
    value = redis.pcall('GETRANGE', KEYS[i], 0, 1023)
    if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  end
  if type(value) == 'string' and string.match(value, '^wllock%d*:') then -- of another format, too
    one.value = value
    if string.sub(value, 1, 9) == 'wllock:s:' then
      one.readers = redis.call('ZRANGE', KEYS[i + 4], string.format('(%d', now), '+inf', 'BYSCORE', 'LIMIT', 0, holders, 'WITHSCORES')
      one.nreaders = #one.readers < 2 * holders and #one.readers / 2 or redis.call('ZCARD', KEYS[i + 4]) -- some of those may have expired
      if #one.readers == 0 then one.readers = nil end
    end
  end
  local state = redis.call('MGET', KEYS[i + 1], KEYS[i + 5])
  one.state, one.broken = state[1] or nil, state[2] or nil
  if state[1] and #state[1] > 19 then
    one.nqueue = redis.call('ZCARD', KEYS[i + 2])
    if waiters > 0 and one.nqueue > 0 then
      one.queue, one.waiters = redis.call('ZRANGE', KEYS[i + 2], 0, waiters - 1, 'WITHSCORES'), {}
      for j = 1, #one.queue, 2 do
        one.waiters[#one.waiters + 1] = redis.call('HGET', KEYS[i + 3], one.queue[j]) or ''
      end
    end
  end
  all[#all + 1] = one
end
return cjson.encode(all)
