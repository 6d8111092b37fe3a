package functionapi

// What reads take of a node's memory.
const (
	RoomLarge  = roomLarge
	RoomSmall  = roomSmall
	RoomsLarge = roomsLarge
)

// ParseRange reads a range, and says what it is of an input of that size.
func ParseRange(header string, size int64) (first, length int64, ok bool) {
	r, ok := parseRange(header)
	if !ok {
		return 0, 0, false
	}
	first, length, err := r.of(size)
	return first, length, err == nil
}

// ParseTarget reads what a call is for.
func ParseTarget(s, query, own string) (function, path string, err error) {
	t, err := parseTarget(s, query, own)
	if err != nil {
		return "", "", err
	}
	return t.function(), t.url.RequestURI(), nil
}
