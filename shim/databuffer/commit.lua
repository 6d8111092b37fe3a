-- Writes what an attempt has changed, if all that it has read is as it was: 1, or else 0. Each of KEYS has six of ARGV: whether it was
-- read, its value then and when that expires, whether it is written, its value now and when that expires (0: it does not). No value is an empty string.
-- If the last one of ARGV is "note", the last one of KEYS is the record of a run, and before that word are its owner, a field of it and its value, or
-- two empty words. If the run has another owner, nothing is written: 2.
local keys, note, owner, field, text = #KEYS, nil, nil, nil, nil
if ARGV[#ARGV] == 'note' then
  note, owner, field, text = KEYS[keys], ARGV[#ARGV - 3], ARGV[#ARGV - 2], ARGV[#ARGV - 1]
  keys = keys - 1
  if not (redis.acl_check_cmd('HGET', note, 'owner') and redis.acl_check_cmd('HSET', note, field, text)) then
    return redis.error_reply('NOPERM the user may not write the record of a run')
  end
  if redis.call('HGET', note, 'owner') ~= owner then
    return 2
  end
end
local function holds(key, value, expires)
  return (redis.call('DUMP', key) or '') == value and redis.call('PEXPIRETIME', key) == tonumber(expires)
end
for i = 1, keys do
  local key = KEYS[i]
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
for i = 1, keys do
  local key = KEYS[i]
  local of = 6 * (i - 1)
  if ARGV[of + 4] == '1' and ARGV[of + 5] ~= '' then
    redis.call('RESTORE', key, ARGV[of + 6], ARGV[of + 5], 'REPLACE', 'ABSTTL')
  end
end
for i = 1, keys do
  local key = KEYS[i]
  local of = 6 * (i - 1)
  if ARGV[of + 4] == '1' and ARGV[of + 5] == '' then
    redis.call('DEL', key)
  end
end
if note and field ~= '' then
  redis.call('HSET', note, field, text)
end
return 1
