// Package order is what the function media is told, and what it answers.
package order

import "time"

// Input stands for the request's input in a program's arguments, Named for one of its named inputs.
const Input = "{input}"

// Names are those that named inputs may have.
var Names = []string{"a", "b", "c", "d"}

// Named stands for a named input.
func Named(name string) string { return "{input." + name + "}" }

// Program is one to run. What it writes to its standard output becomes an object, or a file.
type Program struct {
	Args []string `json:"args"`
	// Bucket and Key name the object; Key is empty if there is to be none.
	Bucket string `json:"bucket,omitempty"`
	Key    string `json:"key,omitempty"`
	// Keep is the file.
	Keep string `json:"keep,omitempty"`
}

// Done is how long the programs ran, and how long it took to store what they wrote.
type Done struct {
	Ran time.Duration `json:"ran"`
	Put time.Duration `json:"put"`
}
