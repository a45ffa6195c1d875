#!lua flags=no-writes
-- runs tells what record has kept. KEYS: as there.
-- ARGV 1 what the full names begin with
-- Returns a JSON array with two texts for each lock: last and ok, which is empty if there is none.
local all = {}
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if string.sub(name, 1, #ARGV[1]) == ARGV[1] then
    all[#all + 1] = redis.call('HGET', KEYS[1], name) or ''
    all[#all + 1] = redis.call('HGET', KEYS[2], name) or ''
  end
end
return cjson.encode(all)
