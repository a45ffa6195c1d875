#!lua flags=allow-oom
-- probe runs every command that the other scripts use, on a key of its own, and returns those that were refused, one
-- line each: the command and the error.
-- KEYS  1 a key that nobody uses
-- ARGV  1 this process's channel
local KEY = KEYS[1]
local tries = {
  {'DEL', KEY}, {'TIME'}, {'MGET', KEY},
  {'ZADD', KEY, 1, 'a'}, {'ZRANGE', KEY, 0, 0}, {'ZRANK', KEY, 'a'}, {'ZSCORE', KEY, 'a'}, {'ZCARD', KEY},
  {'ZREMRANGEBYSCORE', KEY, 5, 6}, {'ZREM', KEY, 'a'},
  {'HSET', KEY, 'a', 'b'}, {'HGET', KEY, 'a'}, {'HDEL', KEY, 'a'},
  {'SET', KEY, 'a', 'PX', 1000}, {'EXISTS', KEY}, {'PTTL', KEY}, {'PEXPIRE', KEY, 1000, 'GT'}, {'PEXPIREAT', KEY, 1},
  {'PUBLISH', ARGV[1], 'p 0 0'},
}
local refused = {}
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  -- WRONGTYPE: a command was refused that would have deleted the key
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    refused[#refused + 1] = try[1] .. ' ' .. answer.err
  end
end
return table.concat(refused, '\n')
