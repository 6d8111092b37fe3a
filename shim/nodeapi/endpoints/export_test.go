package endpoints

import "time"

// MessageLimit bounds an offer.
const MessageLimit = messageLimit

// Hasten has Keep look for a daemon at another pace, and connections wait for another time. undo takes that back.
func Hasten(pace, wait time.Duration) (undo func()) {
	r, p := retry, patience
	retry, patience = pace, wait
	return func() { retry, patience = r, p }
}
