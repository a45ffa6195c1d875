#!lua
-- enter lets go of the previous lease, if it is still ours here, and asks for this server's vote, or for a place in its queue.
-- KEYS and ARGV 1-6: see common.lua
-- ARGV  7 score   the place in the queue, if it is empty
--       8 nowait  1: no place is taken
--       9 prev    the token to let go of first; "": none
-- Returns "<1: prev held the lock here, 0: it did not, -: none> " and a standing, with "held" for "wait" if nowait.
--
-- The usual case comes before the functions of the others are even defined: the lock is free, or prev's, nobody is queued,
-- and no Break is remembered.
if ARGV[3] == 'x' then
  local raw = redis.call('MGET', KEYS[1], KEYS[2], string.sub(KEYS[2], 1, -5) .. 'b:' .. KEYS[1])
  local mine = raw[1] and raw[1] == ARGV[9] and ARGV[9] ~= '' -- a foreigner's value may be empty
  if (not raw[1] or mine) and raw[2] and not raw[3] and redis.call('EXISTS', KEYS[3]) == 0 then
    local born, longest, before, since = string.match(raw[2], '^(%d+) (%d+) (%d+) (%d+) %w+$')
    local most = math.max(tonumber(longest) or 0, tonumber(before) or 0)
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local age, passed = now - (born or now), now - (since or now)
    if tonumber(longest or 0) >= tonumber(ARGV[5]) and age >= most and passed >= 0 and passed <= most then -- the mark stays as it is
      local got
      if mine then
        got = redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
      else
        got = redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4], 'NX') -- NX: a foreigner's key may be of another type
      end
      if got then
        local found = mine and '1' or ARGV[9] == '' and '-' or '0'
        return found .. string.format(' vote %.0f %.0f 0', age, most)
      end
    end
  end
end

-- include: common
local other = formatOf()
if other then
  return redis.error_reply('ERR another version of wllock has this lock, in format ' .. other
    .. ', and this process knows format 1: all that share locks need versions of one format')
end
local score, nowait, prev = tonumber(ARGV[7]), ARGV[8] == '1', ARGV[9]
local found = '-'
if prev ~= '' then found = letgo(prev) and '1' or '0' end
if not holds(TOKEN) then advance() end -- the queue comes first, and we may be its head
if holds(TOKEN) then -- a repeat, whose answer counts from its own sending
  extend(TOKEN, WINDOW)
elseif not (redis.call('ZCARD', QUEUE) == 0 and take(TOKEN, MODE, WINDOW)) and not nowait then
  queued(score)
end
local reply = found .. ' ' .. standing(nowait and 'held' or 'wait')
flush()
return reply
