#!lua flags=allow-oom
-- renewall is renew for many exclusive leases of one TTL, outside a cluster. Most of the cost of renew is per call, and
-- contention is rare: one EXISTS for all queues finds out.
-- KEYS  1 to n lock, n+1 to 2n queue, of each lease: see common.lua
-- ARGV  1 T in ms; 2 to n+1 token, of each
-- Returns a letter for each: h held, w held and contended, l lost.
local n = #KEYS / 2
local values = redis.call('MGET', unpack(KEYS, 1, n))
local contended = redis.call('EXISTS', unpack(KEYS, n + 1)) > 0
local answer = {}
for i = 1, n do
  local token, value = ARGV[i + 1], values[i]
  if value and string.sub(value, 1, #token) == token then
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
    answer[i] = contended and redis.call('EXISTS', KEYS[n + i]) == 1 and 'w' or 'h'
  else
    answer[i] = 'l'
  end
end
return table.concat(answer)
