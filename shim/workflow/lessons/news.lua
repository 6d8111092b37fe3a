-- Returns the id of the last entry of the stream KEYS[1] that was looked at, and lessons. ARGV: who asks, and has told some of them; the id that
-- was returned before, "-" at first; how many bytes a lesson has at most, and how many all of them may have, but for the first one.
local all, size = { ARGV[2] }, 0
local from = ARGV[2] == '-' and '-' or '(' .. ARGV[2]
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 64)) do
  local fields = entry[2]
  local lesson = fields[1] == 'by' and fields[2] ~= ARGV[1] and fields[3] == 'lesson' and fields[4] or ''
  if #lesson > 0 and #lesson <= tonumber(ARGV[3]) then
    size = size + #lesson
    if #all > 1 and size > tonumber(ARGV[4]) then
      return all
    end
    all[#all + 1] = lesson
  end
  all[1] = entry[1]
end
return all
