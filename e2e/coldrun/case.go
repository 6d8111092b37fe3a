// Package coldrun measures cold requests for the sample function, with Headstart and
// without: what demo and benchmarks have in common, wherever the functions run.
package coldrun

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
)

// Seed makes the videos repeatable.
const Seed = 20240915

// Megabyte is the unit of the tables.
const Megabyte = 1_000_000

// Case is one input with the two functions that get it. Each case has functions of its
// own, so that they become cold while the others have their turn.
type Case struct {
	Label  string // in the table
	Key    string // in the summary and in the store
	Size   int64  // bytes
	SHA256 string
	Object string // in the store
	// Again are objects with the same content, one for each round, that no node has by then. After all rounds a second
	// request with Headstart follows for each. Empty: all rounds are for Object, and no second one follows.
	Again []string
	// Truth is what the video shows; nil for the user's own.
	Truth *mjpeggen.Truth
	Off   string // the function as it is without Headstart
	On    string // the same with the input annotation
	// Relayed: another autoscaler (Knative) starts the functions. Off is none of
	// Headstart's then, and has no trace.
	Relayed bool
}

// Store is where inputs are put.
type Store interface {
	Put(ctx context.Context, key string, body io.ReadSeeker) error
}

// Generated makes a video of mb megabytes and stores it.
func Generated(ctx context.Context, s Store, mb int64) (Case, error) {
	f, truth, err := Video(mb * Megabyte)
	if err != nil {
		return Case{}, err
	}
	defer f.Close()
	c, err := Stored(ctx, s, f, fmt.Sprintf("%d MB", mb), fmt.Sprint(mb))
	c.Truth = &truth
	return c, err
}

// Video makes a video of size bytes, in a file that is gone when it is closed.
func Video(size int64) (*os.File, mjpeggen.Truth, error) {
	f, err := os.CreateTemp("", "headstart-video-")
	if err != nil {
		return nil, mjpeggen.Truth{}, err
	}
	// The file lives as long as it is open, also if the program is killed.
	if err := os.Remove(f.Name()); err != nil {
		return nil, mjpeggen.Truth{}, err
	}
	truth, err := mjpeggen.Generate(f, size, Seed)
	return f, truth, err
}

// Stored puts a file into the store.
func Stored(ctx context.Context, s Store, f io.ReadSeeker, label, key string) (Case, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Case{}, err
	}
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return Case{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Case{}, err
	}
	c := Case{Label: label, Key: key, Size: size, SHA256: fmt.Sprintf("%x", h.Sum(nil)), Object: "camera-7/" + key + ".mjpeg",
		Off: "fire-" + key + "-off", On: "fire-" + key + "-on"}
	return c, s.Put(ctx, c.Object, f)
}
