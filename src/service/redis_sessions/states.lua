-- Returns the epoch of each session, `closed` or an empty text.
-- KEYS: the sessions.
local states = {}
for index, session in ipairs(KEYS) do
  local state = redis.call('HMGET', session, 'epoch', 'closed')
  states[index] = state[1] or (state[2] and 'closed') or ''
end
return states
