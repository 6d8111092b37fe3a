package functionapi

// What reads take of a node's memory.
const (
	RoomLarge  = roomLarge
	RoomSmall  = roomSmall
	RoomsLarge = roomsLarge
)

// ParseTarget reads what a call is for.
func ParseTarget(s, query, own string) (function, path string, err error) {
	t, err := parseTarget(s, query, own)
	if err != nil {
		return "", "", err
	}
	return t.function(), t.url.RequestURI(), nil
}
