#!lua flags=allow-oom
-- renew extends our vote. If this server said before that it had lost that, and it is free, it votes for us again, which does not
-- count as held (rule Q6). Not at the first time: a renewal may arrive after the release, and must not create the lease again.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 ttl     in ms
--       8 revote  1: vote again
-- Returns "held <1: others wait> <age> <longest>" as in a standing, "new <same>", "none" (free, or readers have it as we do), or "other".
-- include: common
local word = 'other'
if holds(TOKEN) then
  extend(TOKEN, tonumber(ARGV[7]))
  word = 'held'
elseif ARGV[8] == '1' and take(TOKEN, MODE, WINDOW) then
  forget(TOKEN)
  word = 'new'
elseif not owner() or MODE == 's' and owner() == 's' then
  word = 'none'
end
local age = mark(TTL, true)
if word == 'held' or word == 'new' then word = word .. ' ' .. othersWait(INSTANCE) .. ' ' .. age end
flush()
return word
