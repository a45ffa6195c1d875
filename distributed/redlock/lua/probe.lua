#!lua
-- probe tries every command that the other scripts use, on a helper key of its own, and names those that the user lacks.
-- KEYS  1-4 of a lock, which are left alone: this script is refused, as enter would be, if the user has no right to them; 5 a key of its own
-- ARGV  1 channel
local KEY = KEYS[5]
local tries = {
  {'DEL', KEY}, {'TIME'}, {'SET', KEY, '1', 'PX', 1000}, {'GET', KEY}, {'MGET', KEY}, {'EXISTS', KEY}, {'PTTL', KEY}, {'PEXPIRE', KEY, 1000, 'GT'}, {'DEL', KEY},
  {'ZADD', KEY, 1, 'a'}, {'ZCARD', KEY}, {'ZRANGE', KEY, 0, 0}, {'ZREVRANGE', KEY, 0, 0}, {'ZRANGEBYSCORE', KEY, 0, 1}, {'ZCOUNT', KEY, 0, 1},
  {'ZRANK', KEY, 'a'}, {'ZSCORE', KEY, 'a'}, {'ZREMRANGEBYSCORE', KEY, 5, 6}, {'ZREM', KEY, 'a'},
  {'HSET', KEY, 'a', 'b'}, {'HGET', KEY, 'a'}, {'HDEL', KEY, 'a'}, {'PUBSUB', 'NUMSUB', ARGV[1]}, {'PUBLISH', ARGV[1], 'probe'},
}
local missing, why = {}, nil
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  -- WRONGTYPE: a command was refused that would have deleted the key
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    if #missing == 0 and string.find(answer.err, 'channel', 1, true) then return redis.error_reply(answer.err) end
    local rule = try[1] == 'PUBSUB' and '+pubsub|numsub' or '+' .. string.lower(try[1])
    if missing[#missing] ~= rule then missing[#missing + 1], why = rule, answer.err end
  end
end
if #missing > 0 then return redis.error_reply('NOPERM the user lacks the ACL rules ' .. table.concat(missing, ' ') .. ' (' .. why .. ')') end
return 'ok'
