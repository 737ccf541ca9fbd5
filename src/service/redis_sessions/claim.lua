-- Stores a session if it is not, adds claims, and returns the epoch. A closed session is opened again only if there are claims to add.
-- KEYS: the session, then its instances. ARGV: its id, its request, how long it lives, the epoch that the server knows, the epoch of a
-- new session, the number of new claims, and owners with their claims: the new ones, then all.
local session = KEYS[1]
local id, life, new = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
local epoch = redis.call('HGET', session, 'epoch')
local closed = not epoch and redis.call('HGET', session, 'closed')
local first, last = 7, 6 + 2 * new
-- The store had lost the session, or the server has not had it.
if (epoch or closed) ~= ARGV[4] then first, last = last + 1, #ARGV end
if closed and last < first then return closed end
if not epoch then
  -- The server that closed it has removed all claims, so that others need not add theirs again.
  epoch = closed or ARGV[5]
  redis.call('DEL', session)
  redis.call('HSET', session, 'epoch', epoch, 'request', ARGV[2], 'claims', 0)
end
for index = first, last, 2 do
  redis.call('HINCRBY', session, 'owner:' .. ARGV[index], ARGV[index + 1])
  redis.call('HINCRBY', session, 'claims', ARGV[index + 1])
end
if redis.call('PTTL', session) < life then redis.call('PEXPIRE', session, life) end
-- An instance belongs to the session that was claimed last.
for index = 2, #KEYS do
  local known = redis.call('GET', KEYS[index])
  if not known or last > first then
    redis.call('SET', KEYS[index], id, 'PX', life)
  elseif known == id and redis.call('PTTL', KEYS[index]) < life then
    redis.call('PEXPIRE', KEYS[index], life)
  end
end
return epoch
