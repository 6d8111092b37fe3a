// Package report is what the client says.
package report

import "time"

// Report is what a client saw. Durations are from the beginning of its main function.
type Report struct {
	Nonce string    `json:"nonce"`
	Began time.Time `json:"began"` // of main
	// Usable is when it had a connection, First when it had the first answer. Redis' client does not say the former.
	Usable time.Duration `json:"usable"`
	First  time.Duration `json:"first"`
	// Again is the same once more, of several the median.
	Again time.Duration `json:"again"`
	// PID is of PostgreSQL's process that answered.
	PID int32 `json:"pid,omitempty"`
	// Small and Large are medians of answers of 64 bytes and of 64 KiB.
	Small time.Duration `json:"small,omitempty"`
	Large time.Duration `json:"large,omitempty"`
}

// Word is what a tenant says of a session, or of one that failed.
type Word struct {
	Tenant string `json:"tenant"`
	// Asked is the user and the application that the session was to be of, Whose are those that the server says.
	Asked string `json:"asked,omitempty"`
	Whose string `json:"whose,omitempty"`
	// PID and Started say which session it is. Marker is the tenant that has had it before.
	PID     int32     `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Marker  string    `json:"marker,omitempty"`
	// First: it is the first that the program has asked for. Waited: it was there before that.
	First  bool `json:"first,omitempty"`
	Waited bool `json:"waited,omitempty"`
	// Failed is why there was no session, or no answer; Lost is what the kept one has ended by.
	Failed string `json:"failed,omitempty"`
	Lost   string `json:"lost,omitempty"`
	// Over: the tenant has had all its sessions, and goes on when the gate ends the connection.
	Over bool `json:"over,omitempty"`
}
