-- One call of a quota. `now` is the time of the server in milliseconds.
-- KEYS: the counter, its slots, its leases, the answer of the call.
local counter, slots, leases, answer = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- ARGV: the length of a tick and of the window in ticks (0 ticks: a fixed window of one tick), the limit, the amount, 1 to
-- accept a part, 1 to count past the limit, how long a grant is valid, and how long the answer is stored (0: not at all).
local tick, ticks = tonumber(ARGV[1]), tonumber(ARGV[2])
local max, amount = tonumber(ARGV[3]), tonumber(ARGV[4])
local best_effort, past_limit = ARGV[5] == '1', ARGV[6] == '1'
local valid, stored = tonumber(ARGV[7]), tonumber(ARGV[8])
-- The lease that is wanted and its amount (0: none), the number of servers, and each lease that ends with the amount that was used of it.
local next_lease, wanted, servers = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
local returned = {}
for index = 12, #ARGV, 2 do returned[ARGV[index]] = tonumber(ARGV[index + 1]) end
-- The largest amount in use, which a number holds exactly.
local MOST = 2 ^ 52
-- How long a key outlives its use, in milliseconds.
local SLACK = 60000
-- The longest and the shortest life of a lease.
local LONGEST, SHORTEST = 60000, 100

local function text(number) return string.format('%.0f', number) end
local function slot_of(entry)
  local at, amount = string.match(entry, '(%d+):(%d+)')
  return tonumber(at), tonumber(amount)
end

local rolling = ticks > 0
local window = (rolling and ticks or 1) * tick
-- How long after its end a lease can be returned. Then it counts as used.
local grace = math.min(window, 5000)
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
    redis.call('DEL', leases)
  end
  valid = time - now
end

-- Counts an amount that was used at a tick, or before.
local function add(added, at_tick)
  added = math.min(added, MOST - used)
  if added <= 0 then return end
  used = used + added
  if not rolling then return end
  local newest = redis.call('LINDEX', slots, -1)
  local at, amount = -1, 0
  if newest then at, amount = slot_of(newest) end
  if at >= at_tick then
    redis.call('LSET', slots, -1, text(at) .. ':' .. text(amount + added))
  else
    redis.call('RPUSH', slots, text(at_tick) .. ':' .. text(added))
  end
end

-- Amounts of leases are in use. Releases do not free them.
local leased = 0
local entries = redis.call('HGETALL', leases)
for index = 1, #entries, 2 do
  local amount, ends = slot_of(entries[index + 1])
  local was_used = returned[entries[index]]
  if was_used then
    add(math.min(was_used, amount), this_tick)
    redis.call('HDEL', leases, entries[index])
  elseif now > ends + grace then
    local at = math.floor(ends / tick)
    if not rolling or at + ticks > this_tick then add(amount, at) end
    redis.call('HDEL', leases, entries[index])
  else
    leased = leased + amount
  end
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
  local free = math.max(max - used - leased, 0)
  if amount <= free or past_limit then
    granted = amount
  elseif best_effort then
    granted = free
  end
  add(granted, this_tick)
  if granted == 0 then valid = 0 end
end

local lease, life = 0, 0
local free = max - used - leased
if wanted > 0 and granted > 0 and repeated == 0 then
  -- At most a hundredth of the limit, and a part of what is left, so that servers that come later find some.
  lease = math.max(math.min(wanted, math.floor(max / 100), math.floor(free / (2 * servers))), 0)
  life = math.min(math.max(math.floor(window / 2 * free / max), SHORTEST), LONGEST)
  if not rolling then life = math.min(life, time - now) end
end
if lease > 0 then
  leased = leased + lease
  redis.call('HSET', leases, next_lease, text(lease) .. ':' .. text(now + life))
  redis.call('PEXPIRE', leases, text(life + window + SLACK))
end

local is_changed = used ~= before or not rolling and time ~= before_time
if used + leased > 0 and is_changed then
  local lasts = text(window + SLACK)
  redis.call('HSET', counter, 'used', text(used), 'time', text(time))
  redis.call('PEXPIRE', counter, lasts)
  if rolling then redis.call('PEXPIRE', slots, lasts) end
elseif before > 0 and used + leased == 0 then
  redis.call('DEL', counter, slots)
end
if stored > 0 and repeated == 0 then
  local entry = text(granted) .. ':' .. text(now + valid) .. ':' .. text(now + stored)
  redis.call('SET', answer, entry, 'PX', text(2 * stored))
end

-- How long until the refused amount is free, or else everything.
local asked = math.max(amount, 1)
local missing = used
if asked > granted and max < used + leased + asked then missing = math.min(used + leased + asked - max, used) end
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
return {granted, valid, used + leased, reset, repeated, lease, life, leased}
