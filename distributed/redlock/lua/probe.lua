#!lua
-- probe tries what the other scripts do, on a helper key of its own.
-- KEYS  1 key
-- ARGV  1 channel
redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('PUBLISH', ARGV[1], 'probe')
return 'ok'
