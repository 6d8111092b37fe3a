-- Writes what attempts have changed, one after the other, as long as all that the next one has read is as it was: how many it has written.
-- ARGV[1] is how many there are. Then each has in ARGV: of how many keys it is, "note" or an empty word, and six for each key: whether it was read,
-- its value then and when that expires, whether it is written, its value now and when that expires (0: it does not). No value is an empty string.
-- With a note there are its owner, a field and its value, or two empty words. KEYS are the keys of each, and with a note the record of its run.
-- If that has another owner, nothing is written: -1.
local argument, name = 1, 0 -- the last ones that were looked at

local function holds(call, key, value, expires)
  return (call('DUMP', key) or '') == value and call('PEXPIRETIME', key) == tonumber(expires)
end

-- Writes what the next attempt has changed: true, or false if something has changed, or nil and why that is refused.
local function commit(call)
  local keys, noted = tonumber(ARGV[argument + 1]), ARGV[argument + 2] == 'note'
  local values, names = argument + 2, name
  argument, name = values + 6 * keys + (noted and 3 or 0), names + keys + (noted and 1 or 0)
  local note, owner, field, text = KEYS[name], ARGV[argument - 2], ARGV[argument - 1], ARGV[argument]
  if noted then
    if not (redis.acl_check_cmd('HGET', note, 'owner') and redis.acl_check_cmd('HSET', note, field, text)) then
      return nil, 'NOPERM the user may not write the record of a run'
    end
    if call('HGET', note, 'owner') ~= owner then
      return nil, 'fenced'
    end
  end
  for i = 1, keys do
    local key, of = KEYS[names + i], values + 6 * (i - 1)
    if ARGV[of + 1] == '1' and not holds(call, key, ARGV[of + 2], ARGV[of + 3]) then
      return false
    end
    -- A script that fails has done what it did before, so all that can be refused is asked for first.
    if ARGV[of + 4] == '1' and not (redis.acl_check_cmd('RESTORE', key, 0, '') and redis.acl_check_cmd('DEL', key)) then
      return nil, 'NOPERM the attempt writes a key that its user may not write'
    end
  end
  -- Values first: a server that does not take one, as it is of a format that it does not know, or has no memory, has done nothing then.
  for i = 1, keys do
    local key, of = KEYS[names + i], values + 6 * (i - 1)
    if ARGV[of + 4] == '1' and ARGV[of + 5] ~= '' then
      local said = call('RESTORE', key, ARGV[of + 6], ARGV[of + 5], 'REPLACE', 'ABSTTL')
      if said.err then
        return false
      end
    end
  end
  for i = 1, keys do
    local key, of = KEYS[names + i], values + 6 * (i - 1)
    if ARGV[of + 4] == '1' and ARGV[of + 5] == '' then
      redis.call('DEL', key)
    end
  end
  if noted and field ~= '' then
    redis.call('HSET', note, field, text)
  end
  return true
end

for n = 1, tonumber(ARGV[1]) do
  local counts, why = commit(n == 1 and redis.call or redis.pcall)
  if counts == nil and n == 1 then
    return why == 'fenced' and -1 or redis.error_reply(why)
  end
  if not counts then
    return n - 1
  end
end
return tonumber(ARGV[1])
