-- Admits a request in one or two windows, KEYS, or in none of them. For each key the arguments are the limit and the window in
-- microseconds: fewer than limit requests may have been admitted in the window before. A key is the list of the admitted times,
-- oldest first, at most limit of them. Returns 0, or the microseconds until all windows would admit a request.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local wait = 0

for n, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[2 * n - 1]), tonumber(ARGV[2 * n])
  local newest = tonumber(redis.call('LINDEX', key, -1))
  if newest and newest > now then
    -- The clock was set back. The log moves with it, or the key would be locked out until the clock has caught up.
    local times = redis.call('LRANGE', key, 0, -1)
    for i, t in ipairs(times) do
      redis.call('LSET', key, i - 1, tonumber(t) - newest + now)
    end
  end

  -- Only the last limit count: the list is longer than that once, after the limit was lowered.
  local oldest = tonumber(redis.call('LINDEX', key, -limit))
  if oldest and oldest + window > now then
    wait = math.max(wait, oldest + window - now)
  end
end
if wait > 0 then
  return wait
end
for n, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[2 * n - 1]), tonumber(ARGV[2 * n])
  redis.call('RPUSH', key, now)
  redis.call('LTRIM', key, -limit, -1)
  -- One more, because the expiry counts whole milliseconds from the one that has begun.
  redis.call('PEXPIRE', key, math.ceil(window / 1000) + 1)
end
return 0
