-- One call of a quota. `now` is the time of the server in milliseconds.
-- KEYS: the counter, its slots, the answer of the call.
local counter, slots, answer = KEYS[1], KEYS[2], KEYS[3]
-- ARGV: the length of a tick and of the window in ticks (0 ticks: a fixed window of one tick), the limit, the amount, 1 to
-- accept a part, 1 to count past the limit, how long a grant is valid, and how long the answer is stored (0: not at all).
local tick, ticks = tonumber(ARGV[1]), tonumber(ARGV[2])
local max, amount = tonumber(ARGV[3]), tonumber(ARGV[4])
local best_effort, past_limit = ARGV[5] == '1', ARGV[6] == '1'
local valid, stored = tonumber(ARGV[7]), tonumber(ARGV[8])
-- The largest amount in use, which a number holds exactly.
local MOST = 2 ^ 52
-- How long a key outlives its use, in milliseconds.
local SLACK = 60000

local function text(number) return string.format('%.0f', number) end
local function slot_of(entry)
  local at, amount = string.match(entry, '(%d+):(%d+)')
  return tonumber(at), tonumber(amount)
end

local rolling = ticks > 0
local state = redis.call('HMGET', counter, 'used', 'time')
local used, time = tonumber(state[1] or 0), tonumber(state[2] or 0)
local before, before_time = used, time
local this_tick = 0
if rolling then
  -- The clock of a new master can be behind.
  now = math.max(now, time)
  time = now
  this_tick = math.floor(now / tick)
  while used > 0 do
    local oldest = redis.call('LINDEX', slots, 0)
    if not oldest then break end
    local at, amount = slot_of(oldest)
    if at + ticks > this_tick then break end
    redis.call('LPOP', slots)
    used = math.max(used - amount, 0)
  end
else
  -- `time` is the end of the window.
  time = math.min(time, now + tick)
  if now >= time then
    used, time = 0, now + tick
  end
  valid = time - now
end

local granted, expires, repeated = 0, 0, 0
local known = stored > 0 and redis.call('GET', answer)
if known then
  local until_time
  granted, expires, until_time = string.match(known, '(%d+):(%d+):(%d+)')
  granted, expires = tonumber(granted), tonumber(expires)
  if now < tonumber(until_time) then repeated = 1 else granted = 0 end
end

if repeated == 1 then
  valid = math.max(expires - now, 0)
elseif amount < 0 then
  granted = math.min(-amount, used)
  used = used - granted
  local rest = rolling and granted or 0
  while rest > 0 do
    local newest = redis.call('RPOP', slots)
    if not newest then break end
    local at, amount = slot_of(newest)
    if amount > rest then redis.call('RPUSH', slots, text(at) .. ':' .. text(amount - rest)) end
    rest = rest - amount
  end
  valid = 0
else
  local free = math.max(max - used, 0)
  if amount <= free or past_limit then
    granted = amount
  elseif best_effort then
    granted = free
  end
  local added = math.min(granted, MOST - used)
  if added > 0 then
    used = used + added
    if rolling then
      local newest = redis.call('LINDEX', slots, -1)
      local at, amount = 0, 0
      if newest then at, amount = slot_of(newest) end
      if newest and at >= this_tick then
        redis.call('LSET', slots, -1, text(at) .. ':' .. text(amount + added))
      else
        redis.call('RPUSH', slots, text(this_tick) .. ':' .. text(added))
      end
    end
  end
  if granted == 0 then valid = 0 end
end

local is_changed = used ~= before or not rolling and time ~= before_time
if used > 0 and is_changed then
  local lasts = text((rolling and ticks or 1) * tick + SLACK)
  redis.call('HSET', counter, 'used', text(used), 'time', text(time))
  redis.call('PEXPIRE', counter, lasts)
  if rolling then redis.call('PEXPIRE', slots, lasts) end
elseif before > 0 and used == 0 then
  redis.call('DEL', counter, slots)
end
if stored > 0 and repeated == 0 then
  local entry = text(granted) .. ':' .. text(now + valid) .. ':' .. text(now + stored)
  redis.call('SET', answer, entry, 'PX', text(2 * stored))
end

-- How long until the refused amount is free, or else everything.
local wanted = math.max(amount, 1)
local missing = used
if wanted > granted and max < used + wanted then missing = used + wanted - max end
local reset = 0
if used > 0 and not rolling then
  reset = time - now
elseif used > 0 and missing > 0 then
  local sum, at = 0, this_tick
  if missing < used then
    for _, entry in ipairs(redis.call('LRANGE', slots, 0, 999)) do
      local amount
      at, amount = slot_of(entry)
      sum = sum + amount
      if sum >= missing then break end
    end
  end
  if sum < missing then at = slot_of(redis.call('LINDEX', slots, -1) or text(this_tick) .. ':0') end
  reset = math.max((at + ticks) * tick - now, 0)
end
return {granted, valid, used, reset, repeated}
