-- Admits a request when fewer than ARGV[1] were admitted in the ARGV[2] microseconds before it. KEYS[1] is the list of
-- the admitted times, oldest first, at most ARGV[1] of them. Returns 0, or the microseconds until one would be admitted.
local key, limit, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local newest = tonumber(redis.call('LINDEX', key, -1))
if newest and newest > now then
  -- The clock was set back. The log moves with it, or the key would be locked out until the clock has caught up.
  local times = redis.call('LRANGE', key, 0, -1)
  for i, t in ipairs(times) do
    redis.call('LSET', key, i - 1, tonumber(t) - newest + now)
  end
end

-- Only the last ARGV[1] count: the list is longer than that once, after the limit was lowered.
local oldest = tonumber(redis.call('LINDEX', key, -limit))
if oldest and oldest + window > now then
  return oldest + window - now
end
redis.call('RPUSH', key, now)
redis.call('LTRIM', key, -limit, -1)
-- One more, because the expiry counts whole milliseconds from the one that has begun.
redis.call('PEXPIRE', key, math.ceil(window / 1000) + 1)
return 0
