#!lua
-- hello is the first question on every connection, about the systems that are known by then, and the first one about every other system
-- (rule Q5). A server whose process is not the one of a system's mark was restarted:
-- it may have lost its last votes, even if it has kept the mark, so it is born anew. Connections do not outlive a process, so no
-- question gets to a restarted server before a hello has been there. The script is one step: of several clients that say hello at
-- once the first renews the mark, and the others find it renewed.
-- KEYS  the marks: see common.lua
-- ARGV  1 1: the server is vouched for (0 is its birth, and no TTL is in use)
--       2 ... longest TTL (ms) that the asker reckons with, of each of KEYS. Then pairs of further marks and such TTLs: the user may have no
--             right to some, which is no reason to refuse the connection; questions about these are refused.
-- Returns "<run_id>", and for each mark " <ms until it counts> <longest TTL in use>", or " - -": no right to it.
local info = redis.pcall('INFO', 'server')
if type(info) == 'table' then return redis.error_reply(info.err .. ': redlock needs INFO') end -- what is renamed away is not named
local run = string.match(info, 'run_id:(%w+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function greet(key, raw, reckoned)
  local born, longest, before, since, was = string.match(raw or '', '^(%d+) (%d+) (%d+) (%d+) (%w+)$')
  born = was == run and tonumber(born) or now
  if born > now then born = now end -- the clock was set back
  longest, before, since = tonumber(longest) or 0, tonumber(before) or 0, tonumber(since) or now
  if ARGV[1] == '1' then born, longest, before = 0, 0, 0 end
  redis.call('SET', key, string.format('%.0f %.0f %.0f %.0f %s', born, longest, before, since, run))
  local most = math.max(longest, before)
  return string.format(' %.0f %.0f', math.max(0, born + math.max(most, tonumber(reckoned)) - now), most)
end

local reply = run
for i, key in ipairs(KEYS) do reply = reply .. greet(key, redis.call('GET', key), ARGV[i + 1]) end
for i = #KEYS + 2, #ARGV, 2 do
  local raw = redis.pcall('GET', ARGV[i])
  reply = reply .. (type(raw) == 'table' and ' - -' or greet(ARGV[i], raw, ARGV[i + 1]))
end
return reply
