-- Writes what an attempt has changed, if all that it has read is as it was: 1, or else 0. Each of KEYS has six of ARGV: whether it was
-- read, its value then and when that expires, whether it is written, its value now and when that expires (0: it does not). No value is an empty string.
local function holds(key, value, expires)
  return (redis.call('DUMP', key) or '') == value and redis.call('PEXPIRETIME', key) == tonumber(expires)
end
for i, key in ipairs(KEYS) do
  local of = 6 * (i - 1)
  if ARGV[of + 1] == '1' and not holds(key, ARGV[of + 2], ARGV[of + 3]) then
    return 0
  end
  -- A script that fails has done what it did before, so all that can be refused is asked for first.
  if ARGV[of + 4] == '1' and not (redis.acl_check_cmd('RESTORE', key, 0, '') and redis.acl_check_cmd('DEL', key)) then
    return redis.error_reply('NOPERM the attempt writes a key that its user may not write')
  end
end
-- Values first: a server that does not take one, as it is of a format that it does not know, has done nothing then.
for i, key in ipairs(KEYS) do
  local of = 6 * (i - 1)
  if ARGV[of + 4] == '1' and ARGV[of + 5] ~= '' then
    redis.call('RESTORE', key, ARGV[of + 6], ARGV[of + 5], 'REPLACE', 'ABSTTL')
  end
end
for i, key in ipairs(KEYS) do
  local of = 6 * (i - 1)
  if ARGV[of + 4] == '1' and ARGV[of + 5] == '' then
    redis.call('DEL', key)
  end
end
return 1
