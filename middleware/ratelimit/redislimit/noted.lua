-- Charges a request that has an id, unless it is a retry of one that was charged. One script, so that of two that come at
-- once one pays for both, and no note is ever there that nobody has paid for.
--
-- KEYS: what redis_rate keeps of the identity; the note that the request was charged
-- ARGV: burst, rate, period and cost, as redis_rate has them; how long the note lives (ms)
-- Returns what redis_rate's script does.

local function charge(KEYS, ARGV)
-- here: redis_rate's script
end

local paid = redis.call('DEL', KEYS[2]) == 1
local cost = ARGV[4]
if paid then
  cost = 0 -- charged is nothing, only asked how it stands
end
local answer = charge({KEYS[1]}, {ARGV[1], ARGV[2], ARGV[3], cost})
if paid then
  answer[1], answer[3] = 1, '-1'
elseif answer[1] > 0 then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[5])
end
return answer
