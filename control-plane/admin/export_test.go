package admin

// Unreachable is what a client of socket says of err: as root, no socket is closed to a
// test.
func Unreachable(socket string, err error) error { return unreachable(socket, err) }
