#!lua flags=allow-oom
-- break ends a lease by force, or those of all readers: the next waiter gets the lock as after a release, with fences above all
-- that the holder has (rule R17).
-- KEYS 1-6 and ARGV 1-7: see common.lua; instance and attempt are those of nobody
-- KEYS  7 broken  see inspect.lua
-- ARGV  8 found   what was found: the lock's value; of readers, "wllock:s:<generation>"
--       9 JSON    for broken
--      10 ms for which that is kept
-- Returns "broken <fence> <s> <us of the second>", or "other": the lock is free, or others have it.
-- include: common queue
local raw = redis.call('MGET', LOCK, STATE)
local value, state = raw[1], load(raw[2])
local first = string.match(value or '', '^wllock:[xs]:.*:(%d+)$') -- the fence that it was granted with
if not first or (isShared(value) and 'wllock:s:' .. first or value) ~= ARGV[8] then return 'other' end

local losers, time = {}, redis.call('TIME')
if isShared(value) then
  losers = redis.call('ZRANGE', READERS, -MOST, -1) -- the others learn it by their renewals (rule R16)
  redis.call('DEL', READERS)
else
  losers[1] = idof(string.match(value, '^wllock:x:[^:]+:%d+:[^:]+:'))
end
first = plus(string.sub(ZERO .. first, -19), block - 1) -- the end of its block, also if the state is lost
state.fence = nextfence(larger(state.fence, first), time) -- nobody has this one
local fence, list = state.fence, {}
if gap > 0 then
  state.free = millis(time) + gap
elseif state.queued then
  list = pop(state, time, 'overwrite')
end
if #list == 0 then redis.call('DEL', LOCK) end
save(state)
redis.call('SET', KEYS[7], time[1] .. ' ' .. time[2] .. ' ' .. fence .. ' ' .. ARGV[9], 'PX', ARGV[10])
announce(list, state)
for _, loser in ipairs(losers) do
  local p, a = string.match(loser, '^([^:]+):(%d+):')
  publish(p, 'l ' .. a)
end
if gap > 0 and state.queued then notifyHead(gap) end
return 'broken ' .. fence .. ' ' .. time[1] .. ' ' .. time[2]
