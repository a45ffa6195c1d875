-- Charges a request, unless it is the retry of a charged one. It is one script, so that if two arrive together, exactly one is
-- charged, and no note exists without a charge.
--
-- KEYS: redis_rate's state of the identity; for a request with an id, the note that it was charged
-- ARGV: burst, rate, period and cost, as in redis_rate; the lifetime of the note (ms)
-- Returns what redis_rate's script returns.

local function charge(KEYS, ARGV)
-- here: redis_rate's script
end

local note = KEYS[2]
local paid = note and redis.call('DEL', note) == 1
local cost = ARGV[4]
if paid then
  cost = 0 -- charges nothing, only reads the state
end
local answer = charge({KEYS[1]}, {ARGV[1], ARGV[2], ARGV[3], cost})

-- A quota is full again after the time of its whole burst, at the latest. A state that says later is from before the clock was
-- set back, or from another quota: it counts as a quota that is used up now.
local burst = ARGV[1] * ARGV[3] / ARGV[2]
local excess = answer[4] - burst -- seconds. Above 0 only if refused, because a request that is allowed ends within the burst
if answer[1] == 0 and excess > 0 then
  redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]) - excess, 'EX', math.ceil(burst))
  answer[3], answer[4] = tostring(answer[3] - excess), tostring(burst)
end

if paid then
  answer[1], answer[3] = 1, '-1'
elseif note and answer[1] > 0 then
  redis.call('SET', note, '', 'PX', ARGV[5])
end
return answer
