-- Writes what a run has come to in place of what its calls have answered, if it has the owner still: "mine", or else "not". KEYS[1] is the run's record;
-- ARGV: the owner, the end, and for how many milliseconds it is kept.
local asked, id, began, owner = unpack(redis.call('HMGET', KEYS[1], 'asked', 'id', 'began', 'owner'))
if owner ~= ARGV[1] then
  return {'not'}
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'asked', asked, 'id', id, 'began', began, 'owner', owner, 'end', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'mine'}
