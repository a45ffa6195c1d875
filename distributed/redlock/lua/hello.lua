#!lua
-- hello is the first question on every connection (rule Q5). A server whose process is not the one of its mark was restarted:
-- it may have lost its last votes, even if it has kept the mark, so it is born anew. Connections do not outlive a process, so no
-- question gets to a restarted server before a hello has been there. The script is one step: of several clients that say hello at
-- once the first renews the mark, and the others find it renewed.
-- KEYS  1 mark: see common.lua
-- ARGV  1 longest TTL (ms) that the asker reckons with
--       2 1: the server is vouched for (0 is its birth, and no TTL is in use)
-- Returns "<run_id> <ms until it counts> <longest TTL in use>".
local info = redis.pcall('INFO', 'server')
if type(info) == 'table' then return redis.error_reply(info.err .. ': redlock needs INFO') end -- what is renamed away is not named
local run = string.match(info, 'run_id:(%w+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local born, longest, before, since, was = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+) (%d+) (%w+)$')
born = was == run and tonumber(born) or now
if born > now then born = now end -- the clock was set back
longest, before, since = tonumber(longest) or 0, tonumber(before) or 0, tonumber(since) or now
if ARGV[2] == '1' then born, longest, before = 0, 0, 0 end
redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f %.0f %s', born, longest, before, since, run))
local most = math.max(longest, before)
return string.format('%s %.0f %.0f', run, math.max(0, born + math.max(most, tonumber(ARGV[1])) - now), most)
