-- Returns "mine" and answers of a run's record, if it has the owner still, or else "not". KEYS[1] is the record; ARGV: the owner, how the names
-- of answers begin, the number of the first one, how many bytes the others may make it, and how many a single one may have.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return {'not'}
end
local all, size, number = {'mine'}, 0, tonumber(ARGV[3])
while true do
  local value = redis.call('HGET', KEYS[1], ARGV[2] .. number)
  if not value then
    return all
  end
  if #value > tonumber(ARGV[5]) then
    return redis.error_reply('ERR answer ' .. number .. ' of the run is too large to be one')
  end
  size = size + #value
  if #all > 1 and size > tonumber(ARGV[4]) then
    return all
  end
  all[#all + 1] = value
  number = number + 1
end
