-- beat refreshes a place in the crowd, of the i-th four keys, and returns the answer; nil, and nothing is done, if the general part is to decide.
local function beat(i, value, state, token, attempt, T, keep, now, ms)
  local holder, longest = string.match(value or '', '^wllock:x:[^:]+:%d+:([^:]+):(%d+):%d+$')
  local fence, free, last, since = string.match(holder and state or '', '^(%d+) 1 (%d+) (%d+) (%d+)$')
  if not fence or #fence ~= 19 then return nil end
  local queue, waiters = KEYS[i + 3], KEYS[i + 4]
  local p, member = string.match(token, '^wllock:x:([^:]+):%d+:([^:]+):$')
  local entry = attempt .. ' ' .. p .. ' x ' .. T .. ' '
  local rank, left = redis.call('ZRANK', queue, member), redis.call('PTTL', KEYS[i + 1])
  if not rank or left < 0 or left > tonumber(longest)
    or string.sub(redis.call('HGET', waiters, member) or '', 1, #entry) ~= entry then return nil end
  since = keptAwake(last, since, T, now, ms)
  refresh(queue, waiters, member, entry, ms, keep)
  redis.call('SET', KEYS[i + 2], fence .. ' 1 ' .. free .. ' ' .. ms .. ' ' .. since, 'PX', keep)
  return 'place ' .. rank .. ' ' .. left .. ' 0 ' .. holder .. ' 0'
end
