-- The values of KEYS, all at the same time: what DUMP returns and when the key expires. A value that takes more than ARGV[1] bytes is
-- not read, and nothing is returned then.
local values = {}
for _, key in ipairs(KEYS) do
  if (redis.call('MEMORY', 'USAGE', key) or 0) > tonumber(ARGV[1]) then
    return {}
  end
  table.insert(values, redis.call('DUMP', key))
  table.insert(values, redis.call('PEXPIRETIME', key))
end
return values
