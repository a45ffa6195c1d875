#!lua flags=allow-oom
-- break ends the lease that was found, or those of all readers, and passes the lock on. Its record names them, so that they get no vote of
-- this server again, nor for the first time: a waiter may have that, and yield it to them (rule Q10).
-- KEYS and ARGV 1-6: see common.lua; KEYS 5 broken: the record, 6 fence: the last one reserved
-- ARGV  7 found   the tokens of holders that were found
--       8 record  of this break
--       9 keep    for how long (ms)
--       10 fence  above those of the holders; "": there are none
--       11 keep   of the fence, as in fence.lua
-- Returns "broken", "other" (they do not hold the lock here), or "high" (that is no fence above them, and nothing was done).
-- include: common
local before = redis.call('GET', KEYS[5]) or ''
if string.find(before, ARGV[8], 1, true) then return 'broken' end -- a repeat
local mode, who, set = owner()
local tokens = mode == 'x' and {who} or mode == 's' and redis.call('ZRANGE', set, 0, -1) or {}
local found = false
for _, token in ipairs(tokens) do found = found or string.find(' ' .. ARGV[7] .. ' ', ' ' .. token .. ' ', 1, true) end
if not found then tokens = {} end -- others hold it here, and stay
for token in string.gmatch(ARGV[7], '%S+') do tokens[#tokens + 1] = token end
local free = ARGV[10] ~= '' and above(ARGV[10], redis.call('GET', KEYS[6]) or '0')
if found and ARGV[10] ~= '' and not free then return 'high' end
if free then reserve(KEYS[6], ARGV[10], ARGV[11]) end
local ended, kept = string.match(before, '^ (.-) \n(.*)$') -- those of the Break before: questions of theirs may still be on their way
local all = ' ' .. table.concat(tokens, ' ') .. ' ' .. string.sub(ended or '', 1, 4096) .. ' \n'
redis.call('SET', KEYS[5], all .. (found and ARGV[8] or kept or ''), 'PX', ARGV[9])
for _, token in ipairs(tokens) do
  if letgo(token) then tell(token, 'gone', '-') end
end
advance()
flush()
return found and 'broken' or 'other'
