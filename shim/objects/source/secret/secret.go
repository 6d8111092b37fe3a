// Package secret reads the credentials of stores from the operator's files.
package secret

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Secret is what one file holds, by key. However it is printed, logged or marshalled, it
// shows nothing.
type Secret struct {
	// A function prints as an address. What lies in an unexported field would be printed
	// by %v, and behind a pointer by %s.
	get func(key string) string
}

// Get returns the key's value, empty if there is none.
func (s Secret) Get(key string) string {
	if s.get == nil {
		return ""
	}
	return s.get(key)
}

// String implements fmt.Stringer; MarshalText covers encoders and slog.
func (Secret) String() string { return "[credentials]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[credentials]" }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// maxFile bounds a secret file, in bytes. Tokens take the most, up to some KB.
const maxFile = 16 << 10

// fileName is what Kubernetes allows as a secret's name.
var fileName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// Load reads the secret of that name from the operator's secrets directory:
//
//	# comment
//	access_key_id = AKIA...
//	secret_access_key = ...
//
// keys are those that it may have, each at most once. Only the file's owner may have
// access to it. Errors name the line, never its content.
func Load(secrets *os.Root, name string, keys ...string) (Secret, error) {
	if !fileName.MatchString(name) {
		return Secret{}, fmt.Errorf("secret %.253q is not a name of lower-case letters, digits, dots and hyphens", name)
	}
	// Without O_NONBLOCK a pipe of that name would hold up the opener.
	file, err := secrets.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Secret{}, fmt.Errorf("opening secret %q: %w", name, err)
	}
	defer file.Close() // It was only read.
	info, err := file.Stat()
	switch {
	case err != nil:
		return Secret{}, fmt.Errorf("opening secret %q: %w", name, err)
	case !info.Mode().IsRegular():
		return Secret{}, fmt.Errorf("secret %q is not a regular file", name)
	case info.Mode().Perm()&0o077 != 0:
		return Secret{}, fmt.Errorf("secret %q has mode %#o: others than its owner have access; use 0600 or 0400", name, info.Mode().Perm())
	case info.Size() > maxFile:
		return Secret{}, fmt.Errorf("secret %q is larger than %d bytes", name, maxFile)
	}
	s, err := Parse(io.LimitReader(file, maxFile), keys...)
	if err != nil {
		return Secret{}, fmt.Errorf("reading secret %q: %w", name, err)
	}
	return s, nil
}

// Parse reads what Load finds in a file.
func Parse(r io.Reader, keys ...string) (Secret, error) {
	values := map[string]string{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !slices.Contains(keys, key) {
			return Secret{}, fmt.Errorf("line %d is not %s = value", n, oneOf(keys))
		}
		if value == "" || values[key] != "" {
			return Secret{}, fmt.Errorf("line %d has no value, or a second one for its key", n)
		}
		values[key] = value
	}
	if err := lines.Err(); err != nil {
		return Secret{}, err
	}
	return Secret{func(key string) string { return values[key] }}, nil
}

func oneOf(keys []string) string {
	if len(keys) < 2 {
		return strings.Join(keys, "")
	}
	last := len(keys) - 1
	return strings.Join(keys[:last], ", ") + " or " + keys[last]
}
