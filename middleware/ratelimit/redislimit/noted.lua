-- Charges a request with an id, unless it is the retry of a charged one. It is one script, so that if two arrive together,
-- exactly one is charged, and no note exists without a charge.
--
-- KEYS: redis_rate's state of the identity; the note that the request was charged
-- ARGV: burst, rate, period and cost, as in redis_rate; the lifetime of the note (ms)
-- Returns what redis_rate's script returns.

local function charge(KEYS, ARGV)
-- here: redis_rate's script
end

local paid = redis.call('DEL', KEYS[2]) == 1
local cost = ARGV[4]
if paid then
  cost = 0 -- charges nothing, only reads the state
end
local answer = charge({KEYS[1]}, {ARGV[1], ARGV[2], ARGV[3], cost})
if paid then
  answer[1], answer[3] = 1, '-1'
elseif answer[1] > 0 then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[5])
end
return answer
