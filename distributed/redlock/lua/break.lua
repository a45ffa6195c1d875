#!lua flags=allow-oom
-- break ends the lease that was found, or those of all readers, and passes the lock on. Its record names them, so that they do not
-- get this server's vote again (rule Q10).
-- KEYS and ARGV 1-6: see common.lua; KEYS 5 broken: the record, 6 fence: the last one reserved
-- ARGV  7 found   the tokens of holders that were found
--       8 record  of this break
--       9 keep    for how long (ms)
--       10 fence  above those of the holders; "": there are none
--       11 keep   of the fence (ms)
-- Returns "broken", "other" (they do not hold the lock here), or "high" (a larger fence is reserved, and nothing was done).
-- include: common
if string.find(redis.call('GET', KEYS[5]) or '', ARGV[8], 1, true) then return 'broken' end -- a repeat
local mode, who, set = owner()
local tokens = mode == 'x' and {who} or mode == 's' and redis.call('ZRANGE', set, 0, -1) or {}
local found = false
for _, token in ipairs(tokens) do found = found or string.find(' ' .. ARGV[7] .. ' ', ' ' .. token .. ' ', 1, true) end
if not found then return 'other' end
if ARGV[10] ~= '' then
  local stored = redis.call('GET', KEYS[6]) or '0'
  if #stored >= 19 and stored >= ARGV[10] then return 'high' end
  redis.call('SET', KEYS[6], ARGV[10], 'PX', ARGV[11])
end
redis.call('SET', KEYS[5], ' ' .. table.concat(tokens, ' ') .. ' \n' .. ARGV[8], 'PX', ARGV[9])
for _, token in ipairs(tokens) do
  letgo(token)
  tell(token, 'gone', '-')
end
advance()
flush()
return 'broken'
