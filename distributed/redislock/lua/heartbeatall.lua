#!lua flags=allow-oom
-- heartbeatall is heartbeat for many places of one TTL that wait for exclusive locks, outside a cluster. Most of the cost of heartbeat is per
-- call, and most places are in the crowd.
-- KEYS  lock, state, queue and waiters of each place: see common.lua
-- ARGV  1 T in ms, as heartbeat has it; 2 keep; then token and attempt of each place
-- Returns a line for each: what heartbeat says; or nothing, and then it is to be asked.
local n, locks, states = #KEYS / 4, {}, {}
for i = 1, n do locks[i], states[i] = KEYS[4 * i - 3], KEYS[4 * i - 2] end
locks, states = redis.call('MGET', unpack(locks)), redis.call('MGET', unpack(states))
local time, answers = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ms = string.format('%d', now)
-- include: crowd beat
for i = 1, n do
  answers[i] = beat(4 * i - 4, locks[i], states[i], ARGV[2 * i + 1], ARGV[2 * i + 2], ARGV[1], ARGV[2], now, ms) or ''
end
return table.concat(answers, '\n')
