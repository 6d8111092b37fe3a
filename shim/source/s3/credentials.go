package s3

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Credentials sign the requests to a store. However they are printed, logged or
// marshalled, they show nothing.
type Credentials struct {
	accessKeyID, secretAccessKey, sessionToken hidden
}

// hidden is a string that no formatting verb reaches: it prints as an address. An
// ordinary string in an unexported field would be printed by %v.
type hidden *string

// String implements fmt.Stringer; MarshalText covers encoders and slog.
func (Credentials) String() string { return "[credentials]" }

// GoString implements fmt.GoStringer.
func (Credentials) GoString() string { return "[credentials]" }

// MarshalText implements encoding.TextMarshaler.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// credentialsError is a secret that cannot be had.
type credentialsError struct{ error }

func provider(load func(context.Context) (Credentials, error)) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		c, err := load(ctx)
		if err == nil && (c.accessKeyID == nil || c.secretAccessKey == nil) {
			err = errors.New("there are none")
		}
		if err != nil {
			return aws.Credentials{}, &credentialsError{err}
		}
		sdk := aws.Credentials{AccessKeyID: *c.accessKeyID, SecretAccessKey: *c.secretAccessKey}
		if c.sessionToken != nil {
			sdk.SessionToken = *c.sessionToken
		}
		return sdk, nil
	})
}

// maxSecret bounds a secret file, in bytes. Session tokens take the most, up to 4 KB.
const maxSecret = 16 << 10

// secretName is what Kubernetes allows as a secret's name.
var secretName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// LoadCredentials reads the secret of that name from the operator's secrets directory:
//
//	# comment
//	access_key_id = AKIA...
//	secret_access_key = ...
//	session_token = ...      (optional)
//
// Only the file's owner may have access to it. Errors name the line, never its content.
func LoadCredentials(secrets *os.Root, name string) (Credentials, error) {
	if !secretName.MatchString(name) {
		return Credentials{}, fmt.Errorf("secret %.253q is not a name of lower-case letters, digits, dots and hyphens", name)
	}
	// Without O_NONBLOCK a pipe of that name would hold up the opener.
	file, err := secrets.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Credentials{}, fmt.Errorf("opening secret %q: %w", name, err)
	}
	defer file.Close() // It was only read.
	info, err := file.Stat()
	switch {
	case err != nil:
		return Credentials{}, fmt.Errorf("opening secret %q: %w", name, err)
	case !info.Mode().IsRegular():
		return Credentials{}, fmt.Errorf("secret %q is not a regular file", name)
	case info.Mode().Perm()&0o077 != 0:
		return Credentials{}, fmt.Errorf("secret %q has mode %#o: others than its owner have access; use 0600 or 0400", name, info.Mode().Perm())
	}
	c, err := parseCredentials(io.LimitReader(file, maxSecret))
	if err != nil {
		return Credentials{}, fmt.Errorf("reading secret %q: %w", name, err)
	}
	return c, nil
}

func parseCredentials(r io.Reader) (Credentials, error) {
	var c Credentials
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		var field *hidden
		switch strings.TrimSpace(key) {
		case "access_key_id":
			field = &c.accessKeyID
		case "secret_access_key":
			field = &c.secretAccessKey
		case "session_token":
			field = &c.sessionToken
		default:
			return Credentials{}, fmt.Errorf("line %d is not access_key_id, secret_access_key or session_token = value", n)
		}
		value = strings.TrimSpace(value)
		if value == "" || *field != nil {
			return Credentials{}, fmt.Errorf("line %d has no value, or a second one for its key", n)
		}
		*field = &value
	}
	if err := lines.Err(); err != nil {
		return Credentials{}, err
	}
	if c.accessKeyID == nil || c.secretAccessKey == nil {
		return Credentials{}, errors.New("access_key_id and secret_access_key are required")
	}
	return c, nil
}
