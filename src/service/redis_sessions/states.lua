-- Returns the epoch of each session, with a minus sign if it is closed, or an empty text.
-- KEYS: the sessions.
local states = {}
for index, session in ipairs(KEYS) do
  local state = redis.call('HMGET', session, 'epoch', 'closed')
  states[index] = state[1] or (state[2] and '-' .. state[2]) or ''
end
return states
