-- Notes that a server lives, and returns how many do. `now` is the time of the server in milliseconds.
-- KEYS: the servers. ARGV: this server, and how long it counts without another call.
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
