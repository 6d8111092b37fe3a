package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// saveInterval is between two writes of the state: a cluster where much changes must not
// wear out an edge node's flash.
const saveInterval = time.Second

// stateFile has a SHA-256 sum, and the message that it is of: all resources as the control
// plane sent them.
type stateFile string

// load returns nil if there is no file.
func (s stateFile) load() (*discovery.DeltaDiscoveryResponse, error) {
	f, err := os.Open(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, sha256.Size+maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the endpoints: %w", err)
	}
	r, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s, err)
	}
	return r, nil
}

func encode(r *discovery.DeltaDiscoveryResponse) ([]byte, error) {
	data, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return append(sum[:], data...), nil
}

func decode(data []byte) (*discovery.DeltaDiscoveryResponse, error) {
	if len(data) < sha256.Size || len(data) > sha256.Size+maxBytes {
		return nil, fmt.Errorf("a file of %d bytes", len(data))
	}
	message := data[sha256.Size:]
	if sum := sha256.Sum256(message); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil, errors.New("its checksum is wrong")
	}
	var r discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(message, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// save replaces the file as a whole: whoever looks finds the old or the new one.
func (s stateFile) save(r *discovery.DeltaDiscoveryResponse) (err error) {
	data, err := encode(r)
	if err != nil {
		return fmt.Errorf("writing the endpoints: %w", err)
	}
	// Always the same name, so that a crash leaves no more than one behind.
	next := string(s) + ".new"
	if err := writeSynced(next, data); err != nil {
		return fmt.Errorf("writing the endpoints: %w", err)
	}
	if err := os.Rename(next, string(s)); err != nil {
		return fmt.Errorf("writing the endpoints: %w", err)
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// keep writes the file after changes, until ctx ends and what is left is written.
func (r *Relay) keep(ctx context.Context) {
	for {
		select {
		case <-r.changed:
			r.save()
		case <-ctx.Done():
			if r.unsaved() {
				r.save()
			}
			return
		}
		select {
		case <-time.After(saveInterval):
		case <-ctx.Done():
		}
	}
}

func (r *Relay) save() {
	if err := stateFile(r.cfg.StateFile).save(r.all()); err != nil {
		r.cfg.Log.Warn("a restart without the control plane would lose the endpoints", "error", err)
	}
}
