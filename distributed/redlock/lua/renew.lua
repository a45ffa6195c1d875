#!lua flags=allow-oom
-- renew extends our vote. If this server said before that it had lost that, and it is free, it votes for us again, which does not
-- count as held (rule Q6). Not at the first time: a renewal may arrive after the release, and must not create the lease again.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 ttl     in ms
--       8 revote  1: vote again
-- The first renewal of a permit passes through the gate: from then on it is one of the readers.
-- Returns "held <1: others wait>", "new <same>", "none" (free, or readers have it as we do), or "other".
-- include: common
local word = 'other'
if gate() == TOKEN then
  local f = facts(TOKEN)
  if take(TOKEN, 's', tonumber(ARGV[7])) then
    setGate(nil)
    if forget(TOKEN) and f and not f.quiet and redis.call('ZCARD', QUEUE) == 0 then holders('idle', '-') end
    advance()
    word = 'held'
  end
elseif holds(TOKEN) then
  extend(TOKEN, tonumber(ARGV[7]))
  word = 'held'
else
  local f = MODE == 's' and facts(TOKEN)
  if f and f.mode == 'p' then -- it has passed elsewhere, and waits here no more
    letgo(TOKEN)
    advance()
  end
end
if word == 'held' then -- all is done
elseif ARGV[8] == '1' and take(TOKEN, MODE, WINDOW) then
  forget(TOKEN)
  word = 'new'
elseif not gate() and (not owner() or MODE == 's' and owner() == 's') then
  word = 'none'
end
mark(TTL, true)
if word == 'held' or word == 'new' then word = word .. ' ' .. othersWait(INSTANCE) end
flush()
return word
