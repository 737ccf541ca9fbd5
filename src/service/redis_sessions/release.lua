-- Removes claims of an owner or else abandoned ones, or abandons them. Returns the number of claims left; -1 if there are none to remove,
-- -2 if the session is not open.
-- KEYS: the session. ARGV: the owner, the number of claims, 1 to abandon them, how long a closed session is known as such, the epoch in
-- which the claims were counted, or an empty text.
local session, owner, abandoned = KEYS[1], 'owner:' .. ARGV[1], 'owner:abandoned'
local left = tonumber(ARGV[2])
local epoch = redis.call('HGET', session, 'epoch')
if not epoch or (ARGV[5] ~= '' and epoch ~= ARGV[5]) then return -2 end
local function take(field)
  local held = tonumber(redis.call('HGET', session, field) or 0)
  local taken = math.min(held, left)
  left = left - taken
  if taken > 0 and redis.call('HINCRBY', session, field, -taken) == 0 then redis.call('HDEL', session, field) end
  return taken
end
local taken = take(owner)
if ARGV[3] == '1' then
  redis.call('HINCRBY', session, abandoned, taken)
  return tonumber(redis.call('HGET', session, 'claims'))
end
if owner ~= abandoned then taken = taken + take(abandoned) end
if taken == 0 then return -1 end
local claims = redis.call('HINCRBY', session, 'claims', -taken)
if claims == 0 then
  redis.call('DEL', session)
  redis.call('HSET', session, 'closed', epoch)
  redis.call('PEXPIRE', session, ARGV[4])
end
return claims
