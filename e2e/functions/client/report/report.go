// Package report is what the client says.
package report

import "time"

// Report is what a client saw. Durations are from the beginning of its main function.
type Report struct {
	Nonce string    `json:"nonce"`
	Began time.Time `json:"began"` // of main
	// Usable is when it had a connection, First when it had the first answer. Redis' client says only when it answers.
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
