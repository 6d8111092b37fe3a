-- Takes a run over, or begins one. KEYS[1] is its record; ARGV: the new owner, what was asked, the run's id, when it began, and for how many
-- milliseconds it is owned and kept, and how many bytes its end may have. The answer is "run", and "other" of another question, "busy" of a run with an owner,
-- "large" of one that nobody reads, or "new" or "again", the run's id, when it began, and what it has come to, if it has ended. It is the same if the
-- question is sent twice.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local asked, id, began, owner, lease, ended = unpack(redis.call('HMGET', KEYS[1], 'asked', 'id', 'began', 'owner', 'lease', 'end'))
if asked and asked ~= ARGV[2] then
  return {'run', 'other'}
end
if ended then
  if #ended > tonumber(ARGV[7]) then
    return {'run', 'large'}
  end
  return {'run', 'again', id, began, ended}
end
if asked and owner ~= ARGV[1] and tonumber(lease) > now then
  return {'run', 'busy'}
end
redis.call('HSET', KEYS[1], 'asked', ARGV[2], 'id', id or ARGV[3], 'began', began or ARGV[4], 'owner', ARGV[1], 'lease', now + ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return {'run', asked and 'again' or 'new', id or ARGV[3], began or ARGV[4], ''}
