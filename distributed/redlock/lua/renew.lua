#!lua flags=allow-oom
-- renew extends our vote. If this server said before that it had lost that, and it is free, it votes for us again, which does not
-- count as held (rule Q6). Not at the first time: a renewal may arrive after the release, and must not create the lease again.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 ttl     in ms
--       8 revote  1: vote again
-- Returns "held <1: others wait>", "new <same>", "none" (free), or "other".
-- include: common
local word = 'other'
local mayVote = ARGV[8] == '1' and not string.find(redis.call('GET', PREFIX .. 'b:' .. LOCK) or '', ' ' .. TOKEN .. ' ', 1, true) -- see break.lua
if holds(TOKEN) then
  extend(TOKEN, tonumber(ARGV[7]))
  word = 'held'
elseif mayVote and take(TOKEN, MODE, WINDOW) then
  forget(TOKEN)
  word = 'new'
elseif not owner() then
  word = 'none'
end
mark() -- which notes the longest TTL
if word == 'held' or word == 'new' then word = word .. ' ' .. othersWait(INSTANCE) end
return word
