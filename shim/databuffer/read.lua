-- The time of the server, in milliseconds, and the values of KEYS, all at the same time: what DUMP returns and when the key expires.
-- Nothing but the time is returned if one of them has more than ARGV[1] parts, or all together have more than ARGV[2] bytes
-- as DUMP returns them, or twice as many in memory.
local counts = { string = 'STRLEN', list = 'LLEN', hash = 'HLEN', set = 'SCARD', zset = 'ZCARD', stream = 'XLEN' }
local parts, most, size, memory = tonumber(ARGV[1]), tonumber(ARGV[2]), 0, 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local values = { now }
for _, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' then
    local count = counts[kind]
    if not count or redis.call(count, key) > (kind == 'string' and most or parts) then
      return { now }
    end
    memory = memory + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
  end
  local value = redis.call('DUMP', key)
  size = size + (value and #value or 0)
  if size > most or memory > 2 * most then
    return { now }
  end
  table.insert(values, value)
  table.insert(values, redis.call('PEXPIRETIME', key))
end
return values
