-- Says that a run's owner is there, if it is still that: "mine", or else "not". KEYS[1] is the run's record; ARGV: the owner, for how many milliseconds it is
-- owned and kept, and perhaps a field with its value.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return {'not'}
end
local clock = redis.call('TIME')
redis.call('HSET', KEYS[1], 'lease', clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[2], unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'mine'}
