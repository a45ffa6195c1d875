#!lua flags=allow-oom
-- renew extends our vote. If the lock is free here, because this server has lost our vote or was away, we vote again: that
-- does not count as held (rule Q6).
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 ttl  in ms
-- Returns "held <1: others wait>", "new <same>", or "other".
-- include: common
local word = 'other'
if holds(TOKEN) then
  extend(TOKEN, tonumber(ARGV[7]))
  word = 'held'
elseif take(TOKEN, MODE, WINDOW) then
  forget(TOKEN)
  word = 'new'
end
youth() -- which notes the longest TTL
if word ~= 'other' then word = word .. ' ' .. othersWait(INSTANCE) end
return word
