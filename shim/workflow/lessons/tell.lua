-- Adds a lesson to the stream KEYS[1]. ARGV: who tells it, the lesson, about how many of them are kept, and for how many milliseconds.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'by', ARGV[1], 'lesson', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
